// The worker that loads and runs programs, so that the page stays responsive and threads may wait: it does what pliant.js asks for.

import { Engine } from "./engine.js";
import { toMessage } from "./errors.js";
import { port } from "./host.js";

let main; // without `await` at the top: bundlers build workers as classic scripts
let engine = null;

const tasks = {
  async load(id, { url, options }) {
    const onProgress = options.progress ? (progress) => main.post({ id, progress }) : undefined;
    engine = await Engine.load(url, { ...options, onProgress });
    return engine.facts();
  },
  run: (_, { inputs, dims }) => engine.run(inputs, dims),
  hold: (_, { name, dims }) => engine.hold(name, dims),
};

const buffers = (value) => Object.values(value ?? {}).flatMap((r) => (ArrayBuffer.isView(r?.data) ? [r.data.buffer] : []));

async function serve({ id, task, ...asked }) {
  try {
    const value = await tasks[task](id, asked);
    main.post({ id, value, memory: engine.memory }, buffers(value));
  } catch (error) {
    main.post({ id, error: toMessage(error) });
  }
}

port().then((found) => {
  main = found;
  main.listen(serve);
  main.post("listening");
});
