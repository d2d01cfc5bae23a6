// The next token from logits: greedy, temperature, top-k, top-p, min-p and repetition penalty, in the order of pliant.LLM.

import { PliantError } from "./errors.js";
import { digest } from "./sha256.js";

const DEFAULTS = { temperature: 0.8, top_k: 40, top_p: 0.95, min_p: 0.05, repetition_penalty: 1, repetition_window: 64 };

const RANGES = { top_p: [0, 1], min_p: [0, 1], repetition_penalty: [0.01, 100] };

/** A sampler of one answer; the same logits, options and seed give the same tokens on every machine. */
export class Sampler {
  #options; #seed; #taken = 0;

  constructor(options) {
    this.#options = { ...DEFAULTS, ...Object.fromEntries(Object.keys(DEFAULTS).flatMap((k) => (options[k] == null ? [] : [[k, options[k]]]))) };
    for (const [name, value] of Object.entries(this.#options)) {
      if (typeof value !== "number" || !(value >= 0)) throw new PliantError(`\`${name}\` is ${value}; it is a number from 0 up`);
      const [least, most] = RANGES[name] ?? [0, Infinity];
      if (value < least || value > most) throw new PliantError(`\`${name}\` is ${value}; it is a number from ${least} to ${most}`);
    }
    this.#seed = options.seed ?? Math.floor(Math.random() * 2 ** 53);
  }

  /** The next token; the most likely one if the temperature is 0. */
  sample(logits, history) {
    const { temperature, repetition_penalty: penalty, repetition_window: window } = this.#options;
    const scores = Float64Array.from(logits, (x) => (Number.isNaN(x) ? -Infinity : x));
    if (penalty !== 1 && window > 0) for (const t of new Set(history.slice(-window))) scores[t] = scores[t] > 0 ? scores[t] / penalty : scores[t] * penalty;
    let best = 0;
    for (let t = 1; t < scores.length; t++) if (scores[t] > scores[best]) best = t; // of equal ones the lowest number
    if (!Number.isFinite(scores[best])) throw new PliantError("the model's logits are not numbers", "the model file may be damaged: export it again");
    return temperature === 0 ? best : this.#draw(scores);
  }

  #draw(scores) {
    const { temperature, top_k: k, top_p: p, min_p: least } = this.#options;
    let tokens = Array.from(scores.keys()).filter((t) => scores[t] > -Infinity).sort((a, b) => scores[b] - scores[a] || a - b);
    if (k > 0) tokens = tokens.slice(0, k);
    let chances = tokens.map((t) => Math.exp((scores[t] - scores[tokens[0]]) / temperature));
    const total = chances.reduce((a, b) => a + b, 0);
    chances = chances.map((c) => c / total);
    let last = least > 0 ? Math.max(1, chances.filter((c) => c >= least * chances[0]).length) : tokens.length;
    if (p < 1) {
      let sum = 0, enough = 0;
      while (enough < last && sum < p) sum += chances[enough++];
      last = Math.max(1, enough);
    }
    chances = chances.slice(0, last);
    let left = this.#next() * chances.reduce((a, b) => a + b, 0);
    const found = chances.findIndex((c) => (left -= c) < 0);
    return tokens[found < 0 ? last - 1 : found];
  }

  /** The next uniform number in [0, 1): a function of the seed and how many were taken before. */
  #next() {
    const bytes = digest(new TextEncoder().encode(`pliant-sample ${this.#seed} ${this.#taken++}`));
    return Number(new DataView(bytes.buffer).getBigUint64(0) >> 11n) / 2 ** 53;
  }
}
