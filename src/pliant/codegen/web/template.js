// Renders chat templates. An export holds a template as a tree (src/pliant/llm/template_tree.py), so no page evaluates text as a program.

import { PliantError } from "./errors.js";

const truth = (v) => (Array.isArray(v) || typeof v === "string" ? v.length > 0 : v instanceof Map ? v.size > 0 : Boolean(v));
const own = (v, key) => (v !== null && typeof v === "object" && Object.hasOwn(v, key) ? v[key] : undefined);
const same = (a, b) => (typeof a === "object" && a && b ? JSON.stringify(a) === JSON.stringify(b) : a === b || ((a ?? null) === null && (b ?? null) === null && a === b));
const text = (v) => (v === undefined ? "" : v === null ? "None" : v === true ? "True" : v === false ? "False" : typeof v === "object" ? refuse("to write a list or dict") : String(v));

function refuse(what) {
  throw new PliantError(`the chat template needs ${what}, which pages do not have`);
}

const SPACE = /[\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]/; // what Python strips
const SPACES = new RegExp(`${SPACE.source}+`);

const strip = (s, characters, sides) => {
  const known = (characters ?? null) === null ? (c) => SPACE.test(c) : (c) => characters.includes(c);
  let start = 0, end = s.length;
  while (sides & 1 && start < end && known(s[start])) start++;
  while (sides & 2 && end > start && known(s[end - 1])) end--;
  return s.slice(start, end);
};
const METHODS = {
  strip: (s, c) => strip(s, c, 3), lstrip: (s, c) => strip(s, c, 1), rstrip: (s, c) => strip(s, c, 2),
  upper: (s) => s.toUpperCase(), lower: (s) => s.toLowerCase(),
  replace: (s, a, b, ...count) => (count.length ? refuse("`replace` with a count") : s.replaceAll(a, () => b)),
  startswith: (s, c) => s.startsWith(c), endswith: (s, c) => s.endsWith(c),
  split: (s, c, ...limit) => (limit.length ? refuse("`split` with a limit") : (c ?? null) === null ? s.split(SPACES).filter(Boolean) : s.split(c)),
  items: (v) => Object.entries(v), keys: (v) => Object.keys(v), values: (v) => Object.values(v), get: (v, key, other = null) => (Object.hasOwn(v, key) ? v[key] : other),
};
const FILTERS = {
  trim: METHODS.strip, upper: METHODS.upper, lower: METHODS.lower, replace: METHODS.replace, string: text,
  length: (v) => (typeof v === "object" && !Array.isArray(v) ? Object.keys(v).length : v.length), count: (v) => v.length,
  first: (v) => v[0], last: (v) => v[v.length - 1], list: (v) => Array.from(v), items: METHODS.items,
  join: (v, by = "") => v.map(text).join(by), default: (v, other = "", falsy = false) => (v === undefined || (falsy && !truth(v)) ? other : v),
};
const TESTS = {
  defined: (v) => v !== undefined, undefined: (v) => v === undefined, none: (v) => v === null, string: (v) => typeof v === "string",
  mapping: (v) => v !== null && typeof v === "object" && !Array.isArray(v), sequence: (v) => Array.isArray(v) || typeof v === "string",
  iterable: (v) => v !== null && (typeof v === "object" || typeof v === "string"), number: (v) => typeof v === "number",
  boolean: (v) => typeof v === "boolean", true: (v) => v === true, false: (v) => v === false, odd: (v) => v % 2 === 1, even: (v) => v % 2 === 0,
};
const COMPARE = {
  eq: same, ne: (a, b) => !same(a, b), lt: (a, b) => a < b, lteq: (a, b) => a <= b, gt: (a, b) => a > b, gteq: (a, b) => a >= b,
  in: (a, b) => (typeof b === "string" || Array.isArray(b) ? b.includes(a) : own(b, a) !== undefined),
  notin: (a, b) => !COMPARE.in(a, b),
};
const isNumber = (v) => typeof v === "number" || typeof v === "boolean"; // Python adds booleans, too
const ARITHMETIC = {
  add: (a, b) => (Array.isArray(a) ? [...a, ...b] : a + b), sub: (a, b) => a - b, mul: (a, b) => a * b, div: (a, b) => a / b,
  floordiv: (a, b) => Math.floor(a / b), mod: (a, b) => ((a % b) + b) % b,
};

class Render {
  out = "";

  constructor(variables) {
    this.scopes = [new Map(Object.entries(variables))];
  }

  name(key) {
    for (let n = this.scopes.length - 1; n >= 0; n--) if (this.scopes[n].has(key)) return this.scopes[n].get(key);
    return undefined;
  }

  body(nodes) {
    for (const [kind, ...args] of nodes) this[`do_${kind}`](...args);
  }

  do_out(values) {
    for (const v of values) this.out += text(this.value(v));
  }

  do_if(cases, other) {
    const found = cases.find(([test]) => truth(this.value(test)));
    this.body(found ? found[1] : other);
  }

  do_set(target, value) {
    this.assign(target, this.value(value));
  }

  do_for(target, iterated, body, other, test) {
    const source = this.value(iterated) ?? [];
    let items = Array.isArray(source) || typeof source === "string" ? Array.from(source) : Object.keys(source);
    const scope = new Map();
    this.scopes.push(scope);
    try {
      if (test) items = items.filter((item) => (this.assign(target, item), truth(this.value(test))));
      items.forEach((item, n) => {
        scope.clear();
        const length = items.length;
        scope.set("loop", {
          index: n + 1, index0: n, revindex: length - n, revindex0: length - n - 1, first: n === 0, last: n === length - 1, length,
          previtem: items[n - 1], nextitem: items[n + 1],
        });
        this.assign(target, item);
        this.body(body);
      });
    } finally {
      this.scopes.pop();
    }
    if (!items.length) this.body(other);
  }

  assign([kind, ...names], value) {
    if (kind === "name") this.scopes[this.scopes.length - 1].set(names[0], value);
    else if (kind === "field") this.name(names[0])[names[1]] = value;
    else names[0].forEach((target, n) => this.assign(target, value[n]));
  }

  value([kind, ...args]) {
    return this[`get_${kind}`](...args);
  }

  get_const(v) { return v; }
  get_name(key) { return this.name(key); }
  get_list(items) { return items.map((v) => this.value(v)); }
  get_dict(pairs) { return Object.fromEntries(pairs.map(([k, v]) => [this.value(k), this.value(v)])); }
  get_field(of, key) { return own(this.value(of), key); }
  get_and(a, b) { const left = this.value(a); return truth(left) ? this.value(b) : left; }
  get_or(a, b) { const left = this.value(a); return truth(left) ? left : this.value(b); }
  get_not(a) { return !truth(this.value(a)); }
  get_neg(a) { return -this.value(a); }
  get_concat(values) { return values.map((v) => text(this.value(v))).join(""); }
  get_choice(test, yes, no) { return truth(this.value(test)) ? this.value(yes) : no ? this.value(no) : undefined; }
  get_unknown(what) { return refuse(what); }

  get_binary(op, a, b) {
    const left = this.value(a), right = this.value(b);
    const joined = op === "add" && ((typeof left === "string" && typeof right === "string") || (Array.isArray(left) && Array.isArray(right)));
    if (!joined && !(isNumber(left) && isNumber(right))) refuse(`\`${op}\` of other values than numbers`);
    return ARITHMETIC[op](left, right);
  }

  get_item(of, key) {
    const v = this.value(of), k = this.value(key);
    return typeof k === "number" && v != null && v.length !== undefined ? v[k < 0 ? v.length + k : k] : own(v, k);
  }

  get_slice(of, start, stop, step) {
    const v = this.value(of), [a, b, by] = [start, stop, step].map((e) => (e ? this.value(e) : undefined));
    if (by === undefined || by === 1) return v.slice(a ?? 0, b ?? undefined);
    if (by === -1 && a === undefined && b === undefined) return Array.from(v).reverse();
    return refuse("slices with steps");
  }

  get_compare(first, rest) {
    let left = this.value(first);
    return rest.every(([op, e]) => {
      const right = this.value(e), holds = COMPARE[op](left, right);
      left = right;
      return holds;
    });
  }

  get_filter(name, of, args) {
    return (FILTERS[name] ?? refuse(`the filter \`${name}\``))(this.value(of), ...args.map((a) => this.value(a)));
  }

  get_test(name, of, args) {
    return (TESTS[name] ?? refuse(`the test \`${name}\``))(this.value(of), ...args.map((a) => this.value(a)));
  }

  get_call(called, args, named) {
    const values = args.map((a) => this.value(a));
    if (named.length && !(called[0] === "name" && called[1] === "namespace")) refuse("named arguments");
    if (called[0] === "field") return (METHODS[called[2]] ?? refuse(`the method \`${called[2]}\``))(this.value(called[1]), ...values);
    const name = called[0] === "name" ? called[1] : "";
    if (name === "namespace") return Object.fromEntries(named.map(([key, v]) => [key, this.value(v)]));
    if (name === "range" && values.length > 2) refuse("`range` with a step");
    if (name === "range") return Array.from({ length: values[1] === undefined ? values[0] : values[1] - values[0] }, (_, n) => n + (values[1] === undefined ? 0 : values[0]));
    if (name === "raise_exception") throw new PliantError(`chat template: the model does not take this conversation: ${values[0]}`);
    if (name === "strftime_now") return clock(values[0]);
    return refuse(`the function \`${name}\``);
  }
}

function clock(format) {
  const now = new Date(), two = (n) => String(n).padStart(2, "0");
  const name = (options) => now.toLocaleDateString("en-US", options);
  const parts = {
    Y: now.getFullYear(), m: two(now.getMonth() + 1), d: two(now.getDate()), H: two(now.getHours()), M: two(now.getMinutes()), S: two(now.getSeconds()),
    b: name({ month: "short" }), B: name({ month: "long" }), A: name({ weekday: "long" }), a: name({ weekday: "short" }),
  };
  return format.replace(/%(\w)/g, (whole, letter) => parts[letter] ?? whole);
}

/** The text of a conversation, by the tree of a template. */
export function render(tree, variables) {
  const one = new Render(variables);
  one.body(tree);
  return one.out;
}
