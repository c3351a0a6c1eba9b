import { readFileSync } from 'node:fs';
import { errorText } from '../base/errors.ts';
import { printable } from '../base/log.ts';
import { withPort } from '../base/networks.ts';
import type { LoadedSettings } from '../config.ts';

/** Exit codes of sysexits.h, so that scripts and systemd can tell the cases apart. */
export const EXIT = {
  ok: 0,
  failed: 1,
  usage: 64,
  unavailable: 69,
  fault: 70,
  tryLater: 75,
  denied: 77,
  config: 78,
} as const;

/** The meaning of each exit code, for the help text and the manual. */
export const EXIT_MEANINGS: Readonly<Record<keyof typeof EXIT, string>> = {
  ok: 'success',
  failed: 'a check failed, nothing matched, or the request was rejected',
  usage: 'usage error',
  unavailable: 'a required resource is unavailable',
  fault: 'internal error',
  tryLater: 'the store is unavailable; try again later',
  denied: 'permission denied: run the command as root or as the user postern',
  config: 'invalid settings, or this host may not run on its store',
};

/** The interface of a command to the process. */
export interface Io {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly pid: number;
  /** Which of the standard streams are terminals. */
  readonly terminals: { readonly in: boolean; readonly out: boolean; readonly err: boolean };
  out(text: string | Uint8Array): void;
  err(text: string): void;
  /** Calls back on SIGTERM and SIGINT (`stop`) and on SIGHUP (`hangup`). */
  onSignal(listener: (signal: 'stop' | 'hangup') => void): void;
}

/** An option of a command; help, manual and completions are generated from it. Without `value` it is a flag. */
export interface Option {
  readonly short?: string;
  readonly multiple?: boolean;
  /** The placeholder of its value in help texts: `--state STATE`. */
  readonly value?: string;
  /** All allowed values, when there are few. */
  readonly values?: readonly string[];
  readonly help: string;
}

/** How results are printed: as text, as one JSON array, or as one JSON object per line. */
type Format = 'text' | 'json' | 'jsonl';

/** A parsed command line: the arguments after the command's name, and its options. */
export interface Invocation {
  /** The command's name. */
  readonly name: string;
  readonly words: readonly string[];
  flag(name: string): boolean;
  text(name: string): string | undefined;
  texts(name: string): readonly string[];
  /** A required argument, with its name in the help text. */
  word(name: string, at?: number): string;
  /** The values of an option, each of which must be one of `values`. */
  known<T extends string>(name: string, values: readonly T[]): readonly T[];
  /** A positive whole number. */
  count(name: string, otherwise: number): number;
  readonly format: Format;
  /** Prints the results: `records` as JSON, or `text` for people. */
  print(records: readonly object[], text: () => string): void;
  /** Prints records as JSON, or as a table for people; without `cells`, of all their fields. */
  table<R extends object>(records: readonly R[], shape: TableShape<R>): void;
  /** The settings from `--config`, POSTERN_CONFIG and the environment, loaded once. */
  settings(): LoadedSettings;
  /** Loads the settings again. */
  reload(): LoadedSettings;
}

/** A table for people. */
interface TableShape<R> {
  /** Printed instead of an empty table. */
  readonly none?: string;
  readonly headings: readonly string[];
  readonly cells?: (record: R) => Cells;
}

/** A command, as its file declares it. */
export interface Command {
  /** The arguments, as the help text shows them. */
  readonly args?: string;
  readonly options?: Readonly<Record<string, Option>>;
  /** Added to the end of the help text: paragraphs, each in one line, and indented commands. */
  readonly notes?: string;
  /** Returns the exit code, if that is not `EXIT.ok`. */
  run(call: Invocation, io: Io): Promise<number> | Promise<void>;
}

/** A command in the list of all. Its module is loaded when the command is called. */
export interface ListedCommand {
  /** As typed: `queue list`. */
  readonly name: string;
  readonly summary: string;
  load(): Promise<Command>;
}

/** A listed command with its declaration. */
export type LoadedCommand = Command & Omit<ListedCommand, 'load'>;

export const loadCommand = async ({ name, summary, load }: ListedCommand): Promise<LoadedCommand> => ({
  ...(await load()),
  name,
  summary,
});

/** A command was called wrongly: exit 64, with a hint. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}

/** The command may not access its files: exit 77. */
export class Denied extends Error {
  override readonly name = 'Denied';
}

/** Something that the command needs is missing: exit 69. */
export class Unavailable extends Error {
  override readonly name = 'Unavailable';
}

/** Options that every command has. */
export const COMMON: Readonly<Record<string, Option>> = {
  config: { short: 'c', value: 'FILE', help: 'settings file (default: $POSTERN_CONFIG)' },
  json: { help: 'print the results as one JSON array' },
  jsonl: { help: 'print the results as JSON, one object per line' },
  help: { short: 'h', help: 'show this help' },
};

export type Cells = readonly (string | number | null)[];

/** Reads a key or a URL from a file, because other users could see it on a command line. */
export function readSecret(path: string): string {
  try {
    return readFileSync(path, 'utf8').trim();
  } catch (error) {
    throw new UsageError(errorText(error));
  }
}

/** The URL of this host's daemon, from the settings. */
export function ownServer(call: Pick<Invocation, 'settings'>): string {
  const { host, port } = call.settings().settings.http.listen;
  return `http://${withPort(host, port)}`;
}

/** A table with aligned columns for a terminal. Control characters in cells are escaped. */
export function toTable(headings: readonly string[], rows: readonly Cells[]): string {
  const lines = [headings, ...rows.map((row) => row.map((cell) => (cell === null ? '-' : printable(String(cell)))))];
  const widths = headings.map((_, column) => Math.max(...lines.map((line) => line[column]?.length ?? 0)));
  return (
    lines
      .map((line) =>
        line
          .map((cell, column) => cell.padEnd(widths[column] ?? 0))
          .join('  ')
          .trimEnd(),
      )
      .join('\n') + '\n'
  );
}

/** A record as lines, one for each field. */
export const toFacts = (record: object): string =>
  Object.entries(record)
    .map(([name, value]) => `${name.padEnd(12)} ${printable(String(value ?? '-'))}\n`)
    .join('');

/** Characters of a text in a table, such as a subject. */
const CELL = 40;

/** A text short enough for a table. */
export const toCell = (text: string | null): string | null =>
  text === null || text.length <= CELL ? text : `${text.slice(0, CELL - 1)}…`;

/** The first sentence of a summary, without its full stop. */
export const firstSentence = (text: string): string => text.split(/\.\s|\.$/)[0] ?? text;

/** Columns of help texts: those of the smallest terminal in use. */
const COLUMNS = 80;

/** Text broken at spaces, for the columns from `indent` on. */
export function wrapText(text: string, indent = 0): string {
  const [first = '', ...words] = text.split(' ');
  const lines: string[] = [];
  let line = first;
  for (const word of words)
    if (indent + line.length + 1 + word.length <= COLUMNS) line += ` ${word}`;
    else {
      lines.push(line);
      line = word;
    }
  return [...lines, line].join(`\n${' '.repeat(indent)}`);
}

/** A duration in one unit: 45s, 12m, 3h, 5d. */
export function toSpan(ms: number): string {
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds < 120) return `${seconds}s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)}m`;
  if (seconds < 172_800) return `${Math.round(seconds / 3600)}h`;
  return `${Math.round(seconds / 86_400)}d`;
}
