// The one kind of error that users of pliant.js see.

/** What is wrong with a call or a file, in the words of the compiler; `help` says what to do. */
export class PliantError extends Error {
  constructor(message, help = "") {
    super(help ? `${message}\nhelp: ${help}` : message);
    this.name = "PliantError";
    this.help = help;
  }
}

/** An error as a message between workers. */
export const toMessage = (error) => ({ name: error.name, message: error.message, help: error.help });

/** The error that a message of another worker tells. */
export function fromMessage({ name, message, help }) {
  const error = name === "PliantError" ? new PliantError(message) : Object.assign(new Error(message), { name });
  return Object.assign(error, { help });
}
