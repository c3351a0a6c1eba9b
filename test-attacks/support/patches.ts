import { fileURLToPath } from 'node:url';

/** A place in a file below src/ that a control changes: every `from` becomes `to`. */
export interface Patch { readonly file: string; readonly from: string; readonly to: string }

/** The environment of a daemon that runs with these changes. */
export function withPatches(patches: readonly Patch[]): Record<string, string> {
  if (patches.length === 0) return {};
  return { NODE_OPTIONS: `--import ${fileURLToPath(new URL('patch.ts', import.meta.url))}`, ATTACK_PATCHES: JSON.stringify(patches) };
}

/** The changes that the environment asks for. */
export function readPatches(env: Readonly<Record<string, string | undefined>>): readonly Patch[] {
  return JSON.parse(env['ATTACK_PATCHES'] ?? '[]');
}
