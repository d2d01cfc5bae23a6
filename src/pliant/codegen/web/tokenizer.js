// Byte-level BPE as pliant.LLM does it (src/pliant/llm/tokenizer/): the same tokens for every text.

import { PliantError } from "./errors.js";

const CONTROL = new Set([2, 3]), USER_DEFINED = 4, BYTE = 6; // kinds of tokens, as GGUF files number them
const KEPT_WORDS = 50_000;
const encoder = new TextEncoder();

// GPT-2's table: printable bytes stand for themselves, the others for characters from U+0100 on.
const SPELLED = [];
const BYTES = new Map();
for (let byte = 0, other = 0x100; byte < 256; byte++) {
  const printable = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte !== 0xad);
  SPELLED.push(String.fromCharCode(printable ? byte : other++));
  BYTES.set(SPELLED[byte], byte);
}

/** The bytes of a token's text as they are in the model's file: bytes that are no UTF-8 come as surrogates from U+DC80 on. */
const raw = (text) => Array.from(text).flatMap((c) => {
  const code = c.codePointAt(0);
  return code >= 0xdc80 && code <= 0xdcff ? [code - 0xdc00] : Array.from(encoder.encode(c));
});

export class Tokenizer {
  #ids = new Map(); #ranks = new Map(); #words = new Map(); #patterns; #finders = {};

  /** From what an export says about a tokenizer: tokens, kinds, merges, patterns that cut words, special tokens. */
  constructor(facts) {
    this.facts = facts;
    this.ends = new Set(facts.ends);
    facts.tokens.forEach((text, id) => this.#ids.set(text, id));
    facts.merges.forEach((pair, rank) => this.#ranks.has(pair) || this.#ranks.set(pair, rank));
    this.#patterns = facts.patterns.map((p) => new RegExp(p, "gu"));
    const those = (wanted) => new Map(facts.tokens.flatMap((text, id) => (text && wanted(facts.kinds[id]) ? [[text, id]] : [])).reverse());
    this.#finders.own = finder(those((k) => k === USER_DEFINED));
    this.#finders.control = finder(those((k) => CONTROL.has(k)));
    this.#finders.special = finder(those((k) => k === USER_DEFINED || CONTROL.has(k)));
  }

  /** The tokens of a text; control tokens that are spelled in it are recognized only with `parseSpecial`. */
  encode(text, { addSpecial = true, parseSpecial = false } = {}) {
    text = text.replace(/[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g, "\ufffd");
    const tokens = addSpecial ? [...this.facts.before] : [];
    let at = 0;
    for (const [start, id] of (parseSpecial ? this.#finders.special : this.#finders.own)(text)) {
      if (start < at) continue;
      tokens.push(...this.#plain(text.slice(at, start)), id);
      at = start + this.facts.tokens[id].length;
      if (this.facts.strip_after.includes(id)) at += text.slice(at).length - text.slice(at).trimStart().length;
    }
    tokens.push(...this.#plain(text.slice(at)));
    return addSpecial ? [...tokens, ...this.facts.after] : tokens;
  }

  /** The spans of control tokens that are spelled in a text. */
  *controls(text) {
    for (const [start, id] of this.#finders.control(text)) yield [start, start + this.facts.tokens[id].length];
  }

  /** The bytes that a token stands for: none for control tokens. */
  bytes(id) {
    const text = this.facts.tokens[id], kind = this.facts.kinds[id];
    if (CONTROL.has(kind)) return new Uint8Array(0);
    if (kind === BYTE && /^<0x[0-9A-Fa-f]{2}>$/.test(text)) return Uint8Array.of(parseInt(text.slice(3, 5), 16));
    if (kind === USER_DEFINED) return Uint8Array.from(raw(text));
    return Uint8Array.from(Array.from(text).flatMap((c) => (BYTES.has(c) ? [BYTES.get(c)] : raw(c))));
  }

  /** A decoder of token after token: `push(id)` returns the text that is complete, `finish()` the rest. */
  decoder() {
    const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
    return { push: (id) => decoder.decode(this.bytes(id), { stream: true }), finish: () => decoder.decode() };
  }

  #plain(text) {
    let words = text ? [text] : [];
    for (const pattern of this.#patterns) words = words.flatMap((word) => cut(word, pattern));
    return words.flatMap((word) => this.#word(word));
  }

  #word(word) {
    let tokens = this.#words.get(word);
    if (tokens) return tokens;
    if (this.#words.size >= KEPT_WORDS) this.#words.clear();
    const spelled = Array.from(encoder.encode(word), (byte) => SPELLED[byte]);
    const whole = this.facts.whole_words ? this.#ids.get(spelled.join("")) : undefined;
    tokens = whole !== undefined ? [whole] : merged(spelled, this.#ranks).flatMap((part) => this.#part(part));
    this.#words.set(word, tokens);
    return tokens;
  }

  #part(part) {
    const id = this.#ids.get(part);
    if (id !== undefined) return [id];
    return Array.from(part, (c) => {
      const one = this.#ids.get(c) ?? this.facts.unknown;
      if (one === null) throw new PliantError(`tokenizer: the vocabulary has no token for the byte \`${c}\`, and none for what is unknown`);
      return one;
    });
  }
}

/** The matches of a pattern in a text and what is between them; empty ones are left out. */
function cut(text, pattern) {
  const parts = [];
  let at = 0;
  for (const match of text.matchAll(pattern)) {
    parts.push(text.slice(at, match.index), match[0]);
    at = match.index + match[0].length;
  }
  return [...parts, text.slice(at)].filter(Boolean);
}

/** A function that yields [position, token] of each of these tokens in a text, at each position the longest. */
function finder(ids) {
  const lengths = new Map();
  for (const text of ids.keys()) lengths.set(text[0], new Set(lengths.get(text[0])).add(text.length));
  const sizes = new Map(Array.from(lengths, ([c, found]) => [c, Array.from(found).sort((a, b) => b - a)]));
  return function* (text) {
    for (let at = 0; at < text.length; ) {
      const size = sizes.get(text[at])?.find((n) => ids.has(text.slice(at, at + n)) && at + n <= text.length);
      if (size) yield [at, ids.get(text.slice(at, at + size))];
      at += size ?? 1;
    }
  };
}

/** Parts after all merges: always the pair of the lowest rank first, of equal ones the leftmost. A heap, so that long words cost n log n. */
function merged(given, ranks) {
  const parts = [...given], after = parts.map((_, i) => i + 1), before = parts.map((_, i) => i - 1);
  const heap = [];
  const less = (x, y) => x[0] < y[0] || (x[0] === y[0] && x[1] < y[1]);
  const push = (item) => {
    let i = heap.push(item) - 1;
    for (let up; i > 0 && less(heap[i], heap[(up = (i - 1) >> 1)]); i = up) [heap[i], heap[up]] = [heap[up], heap[i]];
  };
  const pop = () => {
    const first = heap[0], last = heap.pop();
    if (!heap.length) return first;
    heap[0] = last;
    for (let i = 0, down; (down = 2 * i + 1) < heap.length; i = down) {
      if (down + 1 < heap.length && less(heap[down + 1], heap[down])) down++;
      if (!less(heap[down], heap[i])) break;
      [heap[i], heap[down]] = [heap[down], heap[i]];
    }
    return first;
  };
  const offer = (left, right) => {
    const rank = left >= 0 && right < parts.length ? ranks.get(`${parts[left]} ${parts[right]}`) : undefined;
    if (rank !== undefined) push([rank, left, parts[left], parts[right]]);
  };
  for (let i = 0; i + 1 < parts.length; i++) offer(i, i + 1);
  while (heap.length) {
    const [, left, a, b] = pop();
    const right = after[left];
    if (parts[left] !== a || parts[right] !== b) continue; // one of them has been merged since
    parts[left] = a + b;
    parts[right] = "";
    after[left] = after[right];
    if (after[right] < parts.length) before[after[right]] = left;
    offer(before[left], left);
    offer(left, after[left]);
  }
  return parts.filter(Boolean);
}
