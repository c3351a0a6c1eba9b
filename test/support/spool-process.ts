import { type ChildProcess, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import type { Bytes } from '../../src/base/bytes.ts';
import type { Spool } from '../../src/queue/delivery.ts';
import { until } from './until.ts';

const CHILD = fileURLToPath(new URL('./spool-child.ts', import.meta.url));

interface SpoolProcess {
  /** What was said of each message: outcome, id, SHA-256 of its bytes. */
  results(): { readonly outcome: string; readonly id: string; readonly sha256: string }[];
  /** Lines of its log. */
  log(): string;
  readonly child: ChildProcess;
  readonly ended: Promise<number | null>;
}

/** Starts spool-child.ts, under another program (strace) when one is named. */
export function startSpoolProcess(args: readonly (string | number)[], under: readonly string[] = []): SpoolProcess {
  const [program = process.execPath, ...rest] = [
    ...under,
    process.execPath,
    '--no-warnings',
    CHILD,
    ...args.map(String),
  ];
  const child = spawn(program, rest, { stdio: ['ignore', 'pipe', 'pipe'] });
  let out = '';
  let err = '';
  child.stdout.on('data', (chunk) => {
    out += String(chunk);
  });
  child.stderr.on('data', (chunk) => {
    err += String(chunk);
  });
  const ended = new Promise<number | null>((resolve) => {
    child.on('close', (code) => resolve(code));
  });
  return {
    child,
    ended,
    log: () => err,
    results: () =>
      out
        .split('\n')
        .slice(0, -1)
        .map((line) => line.split(' '))
        .flatMap(([outcome, id, sha256]) =>
          outcome !== undefined && id !== undefined && sha256 !== undefined ? [{ outcome, id, sha256 }] : [],
        ),
  };
}

/** Lets it accept `count` messages and kills it without warning. */
export async function killAfter(process: SpoolProcess, count: number): Promise<void> {
  await until(
    `${count} messages accepted`,
    () => process.results().length >= count || process.child.exitCode !== null,
    30_000,
  );
  process.child.kill('SIGKILL');
  await process.ended;
}

/** SHA-256 of a body, wherever it is. */
export async function hashOf(body: Bytes): Promise<string> {
  return createHash('sha256')
    .update(body.kind === 'memory' ? body.bytes : await readFile(body.path))
    .digest('hex');
}

/** Which of the accepted messages are not there, or not as they were. */
export async function missing(
  spool: Spool,
  accepted: readonly { readonly id: string; readonly sha256: string }[],
): Promise<string[]> {
  const lost: string[] = [];
  for (const { id, sha256 } of accepted) {
    const found = await spool.message(id);
    if (!found || (await hashOf(found.body)) !== sha256) lost.push(id);
  }
  return lost;
}
