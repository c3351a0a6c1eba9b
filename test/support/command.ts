import { runCommandLine } from '../../src/cli/command-line.ts';
import { commands } from '../../src/cli/commands.ts';

export interface Ran {
  readonly code: number;
  readonly out: string;
  readonly err: string;
  json(): any;
  records(): any[];
}

/** Runs `postern …argv` in this process with only the given environment. */
export async function postern(argv: readonly string[], env: Readonly<Record<string, string>> = {}): Promise<Ran> {
  const chunks = { out: [] as Uint8Array[], err: [] as Uint8Array[] };
  const code = await runCommandLine(commands, argv, {
    env,
    pid: 1,
    terminals: { in: false, out: false, err: false },
    out: (text) => {
      chunks.out.push(Buffer.from(text));
    },
    err: (text) => {
      chunks.err.push(Buffer.from(text));
    },
    onSignal() {},
  });
  const out = Buffer.concat(chunks.out).toString();
  return {
    code,
    out,
    err: Buffer.concat(chunks.err).toString(),
    json: () => JSON.parse(out),
    records: () => JSON.parse(out),
  };
}
