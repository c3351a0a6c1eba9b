import { fileURLToPath } from 'node:url';

/** A piece of a file below src/ that a control changes: every `from` becomes `to`. */
export interface Patch {
  readonly file: string;
  readonly from: string;
  readonly to: string;
}

/** The environment of a daemon that runs with these changes, and with gauge.ts, which writes to the file `gauge`. */
export function withHooks(patches: readonly Patch[], gauge: string): Record<string, string> {
  const hooks = ['gauge.ts', ...(patches.length > 0 ? ['patch.ts'] : [])];
  const options = hooks.map((hook) => `--import ${fileURLToPath(new URL(hook, import.meta.url))}`).join(' ');
  return { NODE_OPTIONS: options, ATTACK_GAUGE: gauge, ATTACK_PATCHES: JSON.stringify(patches) };
}

/** The changes that the environment asks for. */
export function readPatches(env: Readonly<Record<string, string | undefined>>): readonly Patch[] {
  return JSON.parse(env['ATTACK_PATCHES'] ?? '[]');
}
