import { VERSION } from '../base/version.ts';
import { EXIT, firstSentence, type Io, type ListedCommand } from './command.ts';

/** Runs the command in `argv` (without node and script) and returns its exit code. Never throws. */
export async function runCommandLine(
  commands: readonly ListedCommand[],
  argv: readonly string[],
  io: Io,
): Promise<number> {
  if (argv[0] === '--version' || argv[0] === '-V') {
    io.out(`postern ${VERSION}\n`);
    return EXIT.ok;
  }
  // `postern help queue list` is `postern queue list --help`.
  const asked = argv[0] === 'help' && argv.length > 1 ? [...argv.slice(1), '--help'] : argv;
  const command = find(commands, asked);
  if (!command) return overview(commands, asked, io);
  // It loads the settings and their schemas, which take longer than all of the above.
  const { runCommand } = await import('./run.ts');
  return runCommand(command, asked.slice(command.name.split(' ').length), io);
}

function find(commands: readonly ListedCommand[], argv: readonly string[]): ListedCommand | undefined {
  const typed = argv.slice(0, 2).join(' ');
  return commands.find(({ name }) => name === typed) ?? commands.find(({ name }) => name === argv[0]);
}

const isHelp = (word: string | undefined): boolean => word === 'help' || word === '--help' || word === '-h';

/** Lists all commands, or those of a group, for people who ask for help or mistype a command. */
function overview(commands: readonly ListedCommand[], argv: readonly string[], io: Io): number {
  const [first = 'help', second] = argv;
  const group = commands.filter(({ name }) => name.startsWith(`${first} `));
  const isGroup = group.length > 0;
  if (isHelp(isGroup ? second : first)) {
    io.out(listed(isGroup ? group : commands));
    return EXIT.ok;
  }
  const typed = isGroup ? `${first} ${second}` : first;
  const fault = isGroup && second === undefined ? `"${first}" needs a command` : `unknown command "${typed}"`;
  io.err(`postern: ${fault}\n${isGroup ? `\n${listed(group)}` : 'Try: postern help\n'}`);
  return EXIT.usage;
}

/** One line for each command, short enough for a terminal of 80 columns. */
function listed(commands: readonly ListedCommand[]): string {
  const width = Math.max(...commands.map(({ name }) => name.length));
  const lines = commands.map(({ name, summary }) => `  ${name.padEnd(width)}  ${firstSentence(summary)}\n`);
  return (
    'Postern receives mail by SMTP and posts it to your webhooks.\n\nUsage: postern COMMAND [options]\n\n' +
    `${lines.join('')}\nHelp: postern COMMAND --help. Settings: postern config show.\n`
  );
}
