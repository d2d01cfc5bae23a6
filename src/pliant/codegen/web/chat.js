// Conversations with a language model, in the form of the OpenAI client: `chat.completions.create({ messages, stream: true })`.
//
// The cache of keys and values stays in the program's memory; a prompt that begins as the last conversation did is fed from where they part.

import { PliantError } from "./errors.js";
import { Sampler } from "./sampling.js";
import { render } from "./template.js";
import { Tokenizer } from "./tokenizer.js";

const OPEN = "\ue0f0", CLOSE = "\ue0f1"; // around the number of a text that the template must not see
const CHUNK = 128; // tokens of a prompt in one call: between calls an answer can be stopped

export class Chat {
  #model; #read; #ready = null; #facts; #tokens = []; #last = Promise.resolve();

  /** `read()` gives what the export says about the tokenizer, the template and the cache. */
  constructor(model, read) {
    this.#model = model;
    this.#read = read;
    this.completions = { create: (asked) => this.#create(asked) };
  }

  /** Loads the tokenizer and makes the cache, which the first answer does otherwise. */
  prepare() {
    return (this.#ready ??= (async () => {
      this.#facts = await this.#read();
      this.tokenizer = new Tokenizer(this.#facts.tokenizer);
      for (const [name, dims] of Object.entries(this.#facts.cache)) await this.#model.hold(name, dims);
    })());
  }

  /** The largest number of tokens of a conversation. */
  get context() {
    return this.#facts.context;
  }

  /** The tokens of a conversation, up to where the answer begins. Text in a message never becomes a control token. */
  encode(messages) {
    if (!Array.isArray(messages) || !messages.length || !messages.every((m) => typeof m?.role === "string" && typeof m.content === "string")) {
      throw new PliantError("a prompt is a list of messages with a role and a content", 'for example [{ role: "user", content: "Hi" }]');
    }
    const hidden = [];
    const plain = messages.map((m) => ({ ...m, content: this.#hide(m.content, hidden) }));
    const text = this.#facts.template ? this.#render(plain) : plain[plain.length - 1].content;
    const ids = split(text, hidden).flatMap(([part, special]) => this.tokenizer.encode(part, { addSpecial: false, parseSpecial: special }));
    const { before } = this.#facts.tokenizer;
    return before.every((id, n) => ids[n] === id) ? ids : [...before, ...ids];
  }

  #render(messages) {
    const variables = { messages, add_generation_prompt: true, tools: null, documents: null, ...this.#facts.names };
    try {
      return render(this.#facts.template, variables);
    } catch (error) {
      // some templates refuse a system prompt: prepend it to the first user message
      if (messages.length < 2 || messages[0].role !== "system" || messages[1].role !== "user") throw error;
      const first = { ...messages[1], content: `${messages[0].content}\n\n${messages[1].content}` };
      return render(this.#facts.template, { ...variables, messages: [first, ...messages.slice(2)] });
    }
  }

  #hide(text, kept) {
    const mark = (part) => `${OPEN}${kept.push(part) - 1}${CLOSE}`;
    const plain = (part) => part.replaceAll(OPEN, mark);
    let out = "", at = 0;
    for (const [start, end] of this.tokenizer.controls(text)) {
      out += plain(text.slice(at, start)) + mark(text.slice(start, end));
      at = end;
    }
    return out + plain(text.slice(at));
  }

  /** An answer as the OpenAI client gives it: an object, or with `stream` an async iterator of its parts. */
  async #create(asked) {
    await this.prepare();
    const ids = this.encode(asked.messages);
    const { context } = this.#facts;
    if (ids.length >= context) throw new PliantError(`the text has ${ids.length} tokens, and the context holds ${context}`);
    const facts = { id: `chatcmpl-${Date.now()}`, created: Math.floor(Date.now() / 1000), model: this.#model.name };
    const pieces = this.#answer(ids, asked, new Sampler(asked), new Stops(asked.stop));
    if (asked.stream) return parts(facts, pieces);
    let content = "", end;
    for await (const piece of pieces) {
      content += piece.text ?? "";
      end = piece.end ?? end;
    }
    const choice = { index: 0, message: { role: "assistant", content }, finish_reason: end.reason };
    return { ...facts, object: "chat.completion", choices: [choice], usage: end.usage };
  }

  async *#answer(ids, { max_tokens, signal }, sampler, stops) {
    const before = this.#last, most = max_tokens ?? Infinity;
    let release;
    this.#last = new Promise((done) => (release = done));
    await before; // one answer at a time: there is one cache
    try {
      const decoder = this.tokenizer.decoder(), history = [...ids];
      let shared = 0, count = 0, reason = null;
      while (shared < Math.min(this.#tokens.length, ids.length - 1) && this.#tokens[shared] === ids[shared]) shared++;
      this.#tokens.length = shared;
      let logits = await this.#feed(ids.slice(shared), signal);
      for (;;) {
        const token = sampler.sample(logits, history);
        if (this.tokenizer.ends.has(token)) {
          reason = "stop";
          break;
        }
        count++;
        history.push(token);
        const text = stops.push(decoder.push(token));
        if (text) yield { text };
        reason = stops.found ? "stop" : count >= most || this.#tokens.length >= this.#facts.context ? "length" : null;
        if (reason) break;
        logits = await this.#feed([token], signal);
      }
      const text = stops.push(decoder.finish()) + stops.finish();
      if (text) yield { text };
      const usage = { prompt_tokens: ids.length, completion_tokens: count, total_tokens: ids.length + count };
      yield { end: { reason, usage } };
    } finally {
      release();
    }
  }

  /** Feeds tokens to the model; returns the logits after the last one. */
  async #feed(tokens, signal) {
    let logits;
    try {
      for (let at = 0; at < tokens.length; at += CHUNK) {
        const part = tokens.slice(at, at + CHUNK), start = this.#tokens.length, length = start + part.length;
        const pages = Math.ceil(length / this.#facts.page);
        const results = await this.#model.run(
          {
            tokens: Int32Array.from(part), positions: Int32Array.from(part, (_, n) => start + n), seq_start: Int32Array.of(0, part.length),
            kv_len: Int32Array.of(length), page_table: Int32Array.from({ length: pages }, (_, n) => n), rows: Int32Array.of(part.length - 1),
          },
          { page_table: [1, pages] },
          { signal },
        );
        this.#tokens.push(...part);
        logits = results.logits.data;
      }
    } catch (error) {
      this.#tokens = []; // a stopped call may have written some of the cache, or have lost it
      throw error;
    }
    return logits;
  }
}

/** The parts of a rendered text: [text, whether control tokens in it count]; hidden texts never count. */
function split(text, kept) {
  const [first, ...others] = text.split(OPEN);
  return [[first, true], ...others.flatMap((other) => {
    const end = other.indexOf(CLOSE), number = other.slice(0, end);
    return end > 0 && /^\d+$/.test(number) && Number(number) < kept.length ? [[kept[Number(number)], false], [other.slice(end + 1), true]] : [[OPEN + other, false]];
  })];
}

async function* parts(facts, pieces) {
  const part = (delta, finish_reason = null) => ({ ...facts, object: "chat.completion.chunk", choices: [{ index: 0, delta, finish_reason }] });
  yield part({ role: "assistant", content: "" });
  for await (const { text, end } of pieces) yield end ? { ...part({}, end.reason), usage: end.usage } : part({ content: text });
}

/** Ends an answer before one of some texts, however tokens cut it; what may still become one is held back. */
class Stops {
  #held = "";
  found = null;

  constructor(stops) {
    this.stops = (typeof stops === "string" ? [stops] : (stops ?? [])).filter(Boolean);
  }

  push(piece) {
    if (this.found !== null) return "";
    const text = this.#held + piece;
    const places = this.stops.map((s) => [text.indexOf(s) + s.length, text.indexOf(s), s]).filter(([, at]) => at >= 0).sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    if (places.length) {
      [, , this.found] = places[0];
      this.#held = "";
      return text.slice(0, places[0][1]);
    }
    const longest = Math.max(1, ...this.stops.map((s) => s.length)) - 1;
    let keep = Math.min(longest, text.length);
    while (keep && !this.stops.some((s) => s.startsWith(text.slice(text.length - keep)))) keep--;
    this.#held = text.slice(text.length - keep);
    return text.slice(0, text.length - keep);
  }

  finish() {
    const held = this.#held;
    this.#held = "";
    return held;
  }
}
