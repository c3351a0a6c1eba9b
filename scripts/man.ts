import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { VERSION } from '../src/base/version.ts';
import { COMMON, type Command, EXIT, EXIT_MEANINGS } from '../src/cli/command.ts';
import { commands } from '../src/cli/commands.ts';
import { DEFAULTS_FILE } from '../src/config.ts';
import { readSettings } from './configuration.ts';

// Writes the manual pages into a folder: postern(1) from the commands, postern.yaml(5) from the defaults, postern(8) by hand.

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

function commandLines(command: Command): string[] {
  const args = command.args === undefined ? '' : ` ${text(command.args)}`;
  const options = Object.entries(command.options ?? {}).flatMap(([name, option]) => [
    '.RS',
    '.TP',
    optionName(name, option),
    text(option.help),
    '.RE',
  ]);
  const notes = command.notes === undefined ? [] : ['.RS', '.PP', '.nf', text(command.notes), '.fi', '.RE'];
  return ['.TP', `\\fB${text(command.name)}\\fR${args}`, text(command.summary), ...options, ...notes];
}

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
export function commandPage(): string {
  return page('postern', 1, 'takes mail by SMTP and posts it to webhooks', [
    '.SH SYNOPSIS',
    '\\fBpostern\\fR \\fICOMMAND\\fR [\\fIoptions\\fR]',
    '.SH DESCRIPTION',
    'Run by root, the installed command becomes the user \\fIpostern\\fR first. Commands about the queue work beside the daemon, which notices what they changed.',
    '.SH COMMANDS',
    ...commands.flatMap(commandLines),
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
    'YAML; a setting that is not there has its default. An environment variable wins over the file: levels are separated by two underscores, lists by commas. ' +
      '\\fBpostern config check\\fR names every mistake with its place, \\fBpostern config show\\fR what is in force and where it came from.',
    '.SH SETTINGS',
    ...settings,
    ...SEE_ALSO(['postern(1)', 'postern(8)']),
  ]);
}

/** postern(8): the daemon on a host. */
export function daemonPage(): string {
  return page('postern', 8, 'the mail-edge daemon on a host', [
    '.SH DESCRIPTION',
    'Takes mail on port 25, checks it and posts it to webhooks; takes mail of programs on ports 587 and 465 and delivers it; serves the management API over HTTP. ' +
      'What was answered 250 is on the disk and leaves the queue only when it was delivered, given up or dropped by hand.',
    '.SH UNITS',
    '.TP',
    '\\fBpostern.service\\fR',
    'the daemon. \\fBsystemctl reload\\fR reads settings and certificates again; \\fBsystemctl stop\\fR finishes what is in DATA first.',
    '.TP',
    '\\fBpostern\\-smtp.socket\\fR',
    'port 25. It stays open while the service restarts, so that no client is refused.',
    '.TP',
    '\\fBpostern\\-submission.socket\\fR, \\fBpostern\\-submissions.socket\\fR',
    'ports 587 and 465, when they are enabled.',
    '.SH SIGNALS',
    '.TP',
    'SIGTERM',
    'stops taking mail, finishes what is in DATA and in flight, and ends; a second one ends at once.',
    '.TP',
    'SIGHUP',
    'under a service manager reads settings and certificates again; wrong ones are refused, and the old ones stay. Elsewhere it ends the daemon as SIGTERM does: the terminal was closed.',
    '.SH LOG',
    'Lines for people on a terminal, everywhere else JSON lines, as in the journal: \\fBjournalctl \\-u postern \\-o cat\\fR. The first field is the name of the event. Never a body, a subject or a key.',
    '.SH FIRST STEPS',
    '.nf',
    'editor /etc/postern/postern.yaml',
    'postern config check',
    'systemctl enable \\-\\-now postern\\-smtp.socket postern.service',
    'postern key create',
    'postern doctor',
    '.fi',
    '.SH FILES',
    '.TP',
    '/usr/lib/postern/docs/operations.md',
    'how to run it, task by task',
    '.TP',
    '/etc/postern/credentials',
    'secrets that systemd hands to the service alone',
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
    ['man1/postern.1', commandPage()],
    ['man5/postern.yaml.5', settingsPage()],
    ['man8/postern.8', daemonPage()],
  ] as const) {
    mkdirSync(join(dir, path, '..'), { recursive: true });
    writeFileSync(join(dir, path), roff);
  }
}
