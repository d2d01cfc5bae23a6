// The types of pliant.js.

export type Numbers = Float64Array | Float32Array | BigInt64Array | BigUint64Array | Int32Array | Uint32Array | Int16Array | Uint16Array | Int8Array | Uint8Array;

/** A tensor argument: the typed array of its dtype, numbers, or a result of a call before. A scalar is a number. */
export type Input = Numbers | number[] | Result | { data: Numbers | number[]; dims?: number[] } | number | bigint | boolean;

export interface Result {
  data: Numbers;
  dims: number[];
  dtype: string;
}

export interface Progress {
  file: string;
  loaded: number;
  /** 0 where the size is not known. */
  total: number;
  /** Whether these bytes were kept from an earlier visit. */
  cached?: boolean;
}

export interface LoadOptions {
  /** A number, "auto" for all processors, or "none" for a memory that is not shared. */
  threads?: number | "auto" | "none";
  /** Where weights are kept between visits. */
  cache?: "opfs" | "cache" | "none";
  /** Whether to run the module with fused multiply-add; "auto" asks the engine. */
  fused?: false | "auto";
  /** false: run on the calling thread, and block it. */
  worker?: boolean;
  onProgress?: (progress: Progress) => void;
  signal?: AbortSignal;
}

export interface Features {
  fused: boolean;
  shared: boolean;
  threads: number;
  simd: boolean;
  cache: "opfs" | "cache" | "none";
  worker: boolean;
}

export interface Message {
  role: string;
  content: string;
}

export interface ChatOptions {
  messages: Message[];
  max_tokens?: number;
  stop?: string | string[];
  temperature?: number;
  top_k?: number;
  top_p?: number;
  min_p?: number;
  repetition_penalty?: number;
  repetition_window?: number;
  seed?: number;
  signal?: AbortSignal;
}

export interface Usage {
  prompt_tokens: number;
  completion_tokens: number;
  total_tokens: number;
}

export interface ChatPart {
  id: string;
  object: "chat.completion.chunk";
  created: number;
  model: string;
  choices: [{ index: 0; delta: { role?: "assistant"; content?: string }; finish_reason: "stop" | "length" | null }];
  usage?: Usage;
}

export interface ChatAnswer {
  id: string;
  object: "chat.completion";
  created: number;
  model: string;
  choices: [{ index: 0; message: Message; finish_reason: "stop" | "length" }];
  usage: Usage;
}

export interface Chat {
  readonly completions: {
    create(options: ChatOptions & { stream: true }): Promise<AsyncIterable<ChatPart>>;
    create(options: ChatOptions & { stream?: false }): Promise<ChatAnswer>;
  };
  readonly context: number;
  prepare(): Promise<void>;
  encode(messages: Message[]): number[];
}

export interface Model {
  readonly name: string;
  readonly arguments: { name: string; dtype: string; kind: "tensor" | "scalar"; shape?: string[]; state?: boolean }[];
  readonly outputs: { name: string; dtype: string; shape: string[] }[];
  readonly symbols: { name: string; min: number; max: number | null; multiple_of: number }[];
  readonly features: Features;
  readonly memory: number;
  run(inputs: Record<string, Input>, dims?: Record<string, number[]>, options?: { signal?: AbortSignal }): Promise<Record<string, Result>>;
  hold(name: string, dims: number[]): Promise<void>;
  chat(): Chat;
  close(): void;
}

export declare class PliantError extends Error {
  constructor(message: string, help?: string);
  readonly help: string;
}

export declare function load(url: string | URL, options?: LoadOptions): Promise<Model>;
export declare function clearCache(): Promise<void>;
