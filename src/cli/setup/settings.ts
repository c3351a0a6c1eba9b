import { join } from 'node:path';
import { isPlaceholder } from '../../composition/files.ts';
import { DEFAULTS_FILE, type LoadedSettings, loadSettings } from '../../config.ts';
import { type SettingChange, settingAt, textOf } from './files.ts';

// The settings file of a host: its present values, and the changes that it needs.

/** The text of a new settings file. */
const EXAMPLE = join(DEFAULTS_FILE, '../production.example.yaml');

/** The settings file at a path, or the text for a new one. */
export function settingsFileAt(path: string) {
  const text = textOf(path);
  return { path, text: text ?? textOf(EXAMPLE) ?? '', isNew: text === undefined };
}

export type SettingsFile = ReturnType<typeof settingsFileAt>;

type Env = Readonly<Record<string, string | undefined>>;

/** The settings after setup. */
export function settingsWith(
  { path, isNew }: SettingsFile,
  env: Env,
  changes: readonly SettingChange[],
): LoadedSettings {
  const named = changes.map(({ path: name, value }) => [
    `POSTERN_${name.replaceAll('.', '__').toUpperCase()}`,
    String(value),
  ]);
  return loadSettings(isNew ? EXAMPLE : path, { ...env, ...Object.fromEntries(named) });
}

/** A value that the operator set; undefined if absent, empty, or a placeholder of the example. */
export function setByOperator({ text }: SettingsFile, path: string): string | undefined {
  const value = settingAt(text, path);
  if (value === undefined || value === null || value === '') return undefined;
  const shown = String(value);
  const name = URL.parse(shown)?.hostname ?? shown;
  return isPlaceholder(name) ? undefined : shown;
}

export interface Wanted {
  readonly hostname: string;
  readonly email: string;
  /** Whether this process gets its certificates and serves HTTPS itself. */
  readonly web: boolean;
}

/** The changes that the file needs; separately those of values that the operator has set differently. */
export function neededChanges(file: SettingsFile, { hostname, email, web }: Wanted) {
  const url = `https://${hostname}`;
  const before = setByOperator(file, 'hostname');
  const knownUrl = setByOperator(file, 'public_url');
  // A URL that the operator chose stays, unless it has the old name of this host.
  const publicUrl = knownUrl === undefined || knownUrl === `https://${before}` ? url : knownUrl;
  const wanted: SettingChange[] = [
    { path: 'hostname', value: hostname },
    { path: 'public_url', value: publicUrl },
    { path: 'smtp.postmaster', value: email },
    ...(web
      ? [
          { path: 'acme.enabled', value: true },
          { path: 'acme.email', value: email },
        ]
      : [{ path: 'acme.enabled', value: false }]),
  ];
  const changes = wanted.filter(({ path, value }) => settingAt(file.text, path) !== value);
  const isOverwritten = ({ path }: SettingChange) => path !== 'public_url' && setByOperator(file, path) !== undefined;
  return { changes, overwritten: changes.filter(isOverwritten) };
}

/** Whether the operator decided against certificates of this process. */
export const refusesAcme = (file: SettingsFile): boolean => setByOperator(file, 'acme.enabled') === 'false';
