import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { VERSION } from '../src/base/version.ts';
import { COMMON, EXIT, EXIT_MEANINGS, type LoadedCommand, loadCommand } from '../src/cli/command.ts';
import { commands } from '../src/cli/commands.ts';
import { DEFAULTS_FILE } from '../src/config.ts';
import { readSettings } from './configuration.ts';

// Writes the manual pages into a folder: postern(1) from the commands, postern.yaml(5) from the defaults, postern(8) by
// hand.

/** Text as roff takes it: ASCII, and no line that begins with a control character. */
const text = (words: string): string =>
  words
    .replaceAll('\\', '\\e')
    .replaceAll('-', '\\-')
    .replaceAll(/^([.'])/gm, '\\&$1')
    .replaceAll(
      /[^\x00-\x7f]/gu,
      (letter) => `\\[u${(letter.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0')}]`,
    );

const page = (name: string, section: number, title: string, body: readonly string[]): string =>
  [
    `.TH ${name.toUpperCase()} ${section} "" "Postern ${VERSION}" "Postern"`,
    '.SH NAME',
    `${text(name)} \\- ${text(title)}`,
    ...body,
    '',
  ].join('\n');

function commandLines(command: LoadedCommand): string[] {
  const args = command.args === undefined ? '' : ` ${text(command.args)}`;
  const options = Object.entries(command.options ?? {}).flatMap(([name, option]) => [
    '.RS',
    '.TP',
    optionName(name, option),
    text(option.help),
    '.RE',
  ]);
  const notes = command.notes === undefined ? [] : ['.RS', ...toNotes(command.notes), '.RE'];
  return ['.TP', `\\fB${text(command.name)}\\fR${args}`, text(command.summary), ...options, ...notes];
}

/** Paragraphs filled, and indented commands as they are. */
const toNotes = (notes: string): string[] =>
  notes
    .split('\n')
    .flatMap((line) => (line === '' ? [] : line.startsWith(' ') ? ['.nf', text(line), '.fi'] : ['.PP', text(line)]));

function optionName(name: string, { short, value }: { readonly short?: string; readonly value?: string }): string {
  return `${short === undefined ? '' : `\\fB\\-${short}\\fR, `}\\fB\\-\\-${text(name)}\\fR${value === undefined ? '' : ` \\fI${text(value)}\\fR`}`;
}

const SEE_ALSO = (others: readonly string[]) => [
  '.SH SEE ALSO',
  `${others.map((other) => `\\fB${other.split('(')[0]}\\fR(${other.split('(')[1]}`).join(', ')}`,
];

const KINDS_OF_EXIT = [
  'ok',
  'failed',
  'usage',
  'unavailable',
  'fault',
  'tryLater',
  'denied',
  'config',
] as const satisfies readonly (keyof typeof EXIT)[];

/** postern(1): every command, with its options. */
export async function commandPage(): Promise<string> {
  const loaded = await Promise.all(commands.map(loadCommand));
  return page('postern', 1, 'receive mail by SMTP and post it to webhooks', [
    '.SH SYNOPSIS',
    '\\fBpostern\\fR \\fICOMMAND\\fR [\\fIoptions\\fR]',
    '.SH DESCRIPTION',
    'Started by root, the installed command switches to the user \\fIpostern\\fR. Commands for the queue work ' +
      'beside a running daemon, which notices their changes.',
    '.SH COMMANDS',
    ...loaded.flatMap(commandLines),
    '.SH OPTIONS',
    'Every command has these:',
    ...Object.entries(COMMON).flatMap(([name, option]) => ['.TP', optionName(name, option), text(option.help)]),
    '.SH EXIT STATUS',
    ...KINDS_OF_EXIT.flatMap((kind) => ['.TP', String(EXIT[kind]), text(EXIT_MEANINGS[kind])]),
    '.SH FILES',
    '.TP',
    '/etc/postern/postern.yaml',
    'settings, see \\fBpostern.yaml\\fR(5)',
    '.TP',
    '/var/lib/postern',
    'the queue and the embedded store',
    ...SEE_ALSO(['postern.yaml(5)', 'postern(8)']),
  ]);
}

/** postern.yaml(5): every setting, with its default. */
export function settingsPage(): string {
  const settings = [...readSettings(readFileSync(DEFAULTS_FILE, 'utf8'))].flatMap(({ path, value, comment }) => [
    '.TP',
    `\\fB${text(path)}\\fR`,
    text(comment),
    '.br',
    `Default \\fI${text(value)}\\fR, variable \\fIPOSTERN_${text(path.toUpperCase().replaceAll('.', '__'))}\\fR.`,
  ]);
  return page('postern.yaml', 5, 'settings of Postern', [
    '.SH DESCRIPTION',
    'YAML; missing settings have their defaults. Restart the daemon after a change (\\fBsystemctl restart ' +
      'postern\\fR). Environment variables override the file: two underscores separate levels, commas separate items ' +
      'of a list. \\fBpostern config check\\fR reports every mistake with its path, \\fBpostern config show\\fR ' +
      'prints every effective setting and its origin.',
    '.SH SETTINGS',
    ...settings,
    ...SEE_ALSO(['postern(1)', 'postern(8)']),
  ]);
}

/** postern(8): the daemon on a host. */
export function daemonPage(): string {
  return page('postern', 8, 'the mail-edge daemon on a host', [
    '.SH DESCRIPTION',
    'Receives mail on port 25, checks it and posts it to webhooks; accepts mail from programs on ports 587 and ' +
      '465 and delivers it; serves the management API over HTTP. ' +
      'Mail accepted with 250 is on disk and leaves the queue only when it is delivered, has expired, or is ' +
      'dropped by an operator.',
    '.SH UNITS',
    '.TP',
    '\\fBpostern.service\\fR',
    'the daemon. \\fBsystemctl reload\\fR reloads settings and certificates; \\fBsystemctl stop\\fR completes ' +
      'messages in DATA first.',
    '.TP',
    '\\fBpostern\\-smtp.socket\\fR',
    'port 25. It stays open while the service restarts, so that no client is refused.',
    '.TP',
    '\\fBpostern\\-submission.socket\\fR, \\fBpostern\\-submissions.socket\\fR',
    'ports 587 and 465, if enabled.',
    '.TP',
    '\\fBpostern\\-http.socket\\fR, \\fBpostern\\-https.socket\\fR',
    'ports 80 and 443, if enabled.',
    '.SH SIGNALS',
    '.TP',
    'SIGTERM',
    'stops accepting mail, completes messages in DATA and running deliveries, and exits; a second one exits at once.',
    '.TP',
    'SIGHUP',
    'under a service manager, reloads settings and certificates; invalid ones are refused and the previous ' +
      'ones stay. Otherwise stops the daemon as SIGTERM does, because the terminal was closed.',
    '.SH LOG',
    'Formatted lines on a terminal, otherwise JSON lines, as in the journal: \\fBjournalctl \\-u postern \\-o ' +
      'cat\\fR. The first field is the name of the event. Bodies, subjects and keys are never logged.',
    '.SH FIRST STEPS',
    '.nf',
    'postern setup',
    'postern dns \\-\\-wait',
    'postern doctor',
    '.fi',
    '.SH FILES',
    '.TP',
    '/usr/lib/postern/docs/operations.md',
    "the operator's guide",
    '.TP',
    '/etc/postern/credentials',
    'secrets that systemd passes to the service only',
    ...SEE_ALSO(['postern(1)', 'postern.yaml(5)', 'journalctl(1)']),
  ]);
}

if (import.meta.main) {
  const dir = process.argv[2];
  if (dir === undefined) {
    process.stderr.write('Usage: node scripts/man.ts DIR   (writes DIR/man1, man5 and man8)\n');
    process.exit(64);
  }
  for (const [path, roff] of [
    ['man1/postern.1', await commandPage()],
    ['man5/postern.yaml.5', settingsPage()],
    ['man8/postern.8', daemonPage()],
  ] as const) {
    mkdirSync(join(dir, path, '..'), { recursive: true });
    writeFileSync(join(dir, path), roff);
  }
}
