import { mkdirSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** An input that did what it must not. `file` holds it; `seed` and `number` make it again. */
export interface Failure {
  readonly why: string;
  readonly seed: number;
  readonly number: number;
  readonly file: string;
}

// More of a kind say no more.
const MOST = 10;

/** Keeps the first inputs that failed, of each kind of failure, in files, which stay. */
export function createFailures(kind: string, seed: number) {
  const list: Failure[] = [];
  const dir = join(tmpdir(), 'postern-attacks');
  return {
    list,
    add(number: number, why: string, bytes: Buffer) {
      const kindOf = (text: string) => text.split(':')[0];
      if (list.filter((failure) => kindOf(failure.why) === kindOf(why)).length >= MOST) return;
      mkdirSync(dir, { recursive: true });
      const file = join(dir, `${kind}-${seed}-${number}`);
      writeFileSync(file, bytes);
      list.push({ why, seed, number, file });
    },
  };
}
