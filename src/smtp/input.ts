import { SMTPStream } from 'smtp-server/lib/smtp-stream.js';
import type { Connection } from './connection.ts';
import { MAX_LINE } from './limits.ts';

/** The parser of one connection: command lines by the library, DATA by us. */
export class Input extends SMTPStream {
  readonly #connection: Connection;

  constructor(connection: Connection) {
    super({ maxCommandLength: MAX_LINE });
    this.#connection = connection;
  }

  override oncommand(line: Buffer, next: () => void = ignore): void {
    this.#connection.obey(line, next);
  }

  override _write(chunk: Buffer, encoding: BufferEncoding | 'buffer', next: (error?: Error | null) => void): void {
    if (this.isClosed || chunk.length === 0) return next();
    if (this._dataMode) return this.#takeData(chunk, next);
    this.#connection.noteBytes(chunk);
    // Commands that come together are answered together.
    if (chunk.indexOf(10) < chunk.length - 1) this.#connection.hold();
    super._write(chunk, encoding, next);
    this.#connection.release();
  }

  /** An unfinished line at the end of the input is no command. */
  override _flushData(): void {}

  #takeData(chunk: Buffer, next: (error?: Error | null) => void): void {
    const connection = this.#connection;
    connection.own
      .data(chunk)
      .then(({ answer, rest }) => {
        if (!answer) return next();
        this._dataMode = false;
        this._remainder = '';
        connection.answer(answer, () => this._write(rest, 'buffer', next));
      })
      .catch((error: unknown) => connection.fail(error));
  }
}

function ignore() {}
