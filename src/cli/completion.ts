import {
  COMMON,
  type Command,
  firstSentence,
  type ListedCommand,
  type LoadedCommand,
  loadCommand,
  type Option,
  UsageError,
} from './command.ts';

/** Supported shells. */
const SHELLS = ['bash', 'zsh', 'fish'] as const;
type Shell = (typeof SHELLS)[number];

/** The command that completes `commands`, itself among them. */
export const createCompletion = (commands: readonly ListedCommand[]): Command => ({
  args: SHELLS.join(' | '),
  notes:
    '  . <(postern completion bash)\n' +
    '  postern completion zsh > "${fpath[1]}/_postern"\n' +
    '  postern completion fish > ~/.config/fish/completions/postern.fish',
  async run(call, io) {
    const shell = SHELLS.find((known) => known === call.words[0]);
    if (!shell) {
      const fault = call.words[0] === undefined ? 'missing argument' : `unknown shell "${call.words[0]}"`;
      throw new UsageError(`${fault}: pass one of ${SHELLS.join(', ')}`);
    }
    io.out(completionScript(shell, await Promise.all(commands.map(loadCommand))));
  },
});

/** The completion script of all commands and their options for one shell. */
function completionScript(shell: Shell, commands: readonly LoadedCommand[]): string {
  const tree = toTree(commands);
  return { bash: bashScript, zsh: zshScript, fish: fishScript }[shell](tree);
}

/** A first word: a group with its commands, or a command of its own (`leaf`), or both. */
type Head = ReturnType<typeof toTree>[number];

function toTree(commands: readonly LoadedCommand[]) {
  const leaves = commands.map((command) => ({
    name: command.name,
    word: command.name.split(' ').at(-1) ?? '',
    summary: firstSentence(command.summary),
    options: Object.entries({ ...command.options, ...COMMON }).map(([name, option]) => ({ name, ...option })),
    // `bash | zsh | fish` are literal words; `ADDRESS` is a placeholder.
    words: (command.args ?? '')
      .split('|')
      .map((word) => word.trim())
      .filter((word) => /^[a-z]+$/.test(word)),
  }));
  return [...Map.groupBy(leaves, ({ name }) => name.split(' ')[0] ?? '')].map(([word, group]) => {
    const leaf = group.find(({ name }) => name === word);
    const members = group.filter((one) => one !== leaf);
    return { word, members, leaf, summary: leaf?.summary ?? members.map((one) => one.word).join(', ') };
  });
}

const groupsOf = (tree: readonly Head[]) => tree.filter(({ members }) => members.length > 0);

const allLeaves = (tree: readonly Head[]) => tree.flatMap(({ leaf, members }) => (leaf ? [leaf, ...members] : members));

/** Quoted for bash and zsh. */
const quoted = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`;

function bashScript(tree: readonly Head[]): string {
  const values = valuesOf(tree).map(
    ([name, words]) => `    --${name}) COMPREPLY=($(compgen -W ${quoted(words.join(' '))} -- "$current")); return ;;\n`,
  );
  const groups = groupsOf(tree).map(
    ({ word, members }) => `    ${word}) depth=2 words=${quoted(members.map((one) => one.word).join(' '))} ;;\n`,
  );
  const leaves = allLeaves(tree).map(({ name, options, words }) => {
    const flags = options.map((option) => `--${option.name}`).join(' ');
    return `    ${quoted(name)}) words=${quoted(words.join(' '))} options=${quoted(flags)} ;;\n`;
  });
  return `# Completion of postern for bash; generated.
_postern() {
  local current=\${COMP_WORDS[COMP_CWORD]} previous=\${COMP_WORDS[COMP_CWORD-1]}
  local depth=1 words='' options=''
  COMPREPLY=()
  case $previous in
${values.join('')}    ${valued(tree, true).join('|')}) COMPREPLY=($(compgen -f -- "$current")); return ;;
    ${valued(tree, false).join('|')}) return ;;
  esac
  case \${COMP_WORDS[1]-} in
${groups.join('')}  esac
  if ((COMP_CWORD == 1)); then
    words=${quoted(tree.map(({ word }) => word).join(' '))} options='--help --version'
  elif ((COMP_CWORD > depth)); then
    case "\${COMP_WORDS[*]:1:depth}" in
${leaves.map((line) => `  ${line}`).join('')}    esac
  fi
  if [[ $current == -* ]]; then words=$options; fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -F _postern postern
`;
}

function zshScript(tree: readonly Head[]): string {
  const described = (items: readonly { readonly word: string; readonly summary: string }[]) =>
    items.map(({ word, summary }) => `      ${quoted(`${word}:${summary.replaceAll(':', '\\:')}`)}\n`).join('');
  const groups = groupsOf(tree).map(
    ({ word, members }) => `    ${word}) depth=2 items=(\n${described(members)}    ) ;;\n`,
  );
  const leaves = allLeaves(tree).map(({ name, options, words }) => {
    const flags = options.map((option) => {
      const help = option.help.replaceAll(/[[\]:\\]/g, '\\$&');
      return `${option.multiple ? '*' : ''}--${option.name}[${help}]${valueSpec(option)}`;
    });
    const rest = words.length > 0 ? `1:word:(${words.join(' ')})` : '*:argument:_files';
    const specs = [...flags, rest].map((spec) => `        ${quoted(spec)}\n`);
    return `      ${quoted(name)}) specs=(\n${specs.join('')}      ) ;;\n`;
  });
  return `#compdef postern
# Completion of postern for zsh; generated.
_postern() {
  local -a items specs
  local depth=1
  case $words[2] in
${groups.join('')}  esac
  if (( CURRENT == 2 )); then
    items=(
${described(tree)}    )
  elif (( CURRENT > depth + 1 )); then
    case "\${words[2,depth+1]}" in
${leaves.join('')}    esac
  fi
  if (( \${#specs} )); then
    words=(postern "\${(@)words[depth+2,-1]}")
    (( CURRENT -= depth ))
    _arguments -s $specs
  else
    _describe command items
  fi
}
_postern "$@"
`;
}

/** The value of an option in the syntax of `_arguments`. */
function valueSpec({ value, values }: Option): string {
  if (value === undefined) return '';
  return `:${value}:${values ? `(${values.join(' ')})` : value === 'FILE' ? '_files' : ' '}`;
}

function fishScript(tree: readonly Head[]): string {
  const heads = tree.map(
    ({ word, summary }) => `complete -c postern -f -n '__postern_at 0' -a ${word} -d ${fishQuoted(summary)}\n`,
  );
  const members = groupsOf(tree).flatMap(({ word, members: group }) =>
    group.map(
      (one) => `complete -c postern -f -n '__postern_at 1 ${word}' -a ${one.word} -d ${fishQuoted(one.summary)}\n`,
    ),
  );
  const options = allLeaves(tree).flatMap(({ name, options: flags, words }) => [
    ...flags.map((option) => {
      const described = `${option.name}${fishValue(option)} -d ${fishQuoted(option.help)}`;
      return `complete -c postern -n '__postern_in ${name}' -l ${described}\n`;
    }),
    ...words.map((word) => `complete -c postern -f -n '__postern_in ${name}' -a ${word}\n`),
  ]);
  return `# Completion of postern for fish; generated.
# True if exactly these words were typed.
function __postern_at
  set -l typed (commandline -opc)[2..-1]
  test (count $typed) -eq $argv[1]; and test "$typed" = "$argv[2..-1]"
end
# True if the words typed begin with these.
function __postern_in
  set -l typed (commandline -opc)[2..-1]
  set -l n (count $argv)
  test (count $typed) -ge $n; and test "$typed[1..$n]" = "$argv"
end
complete -c postern -f
complete -c postern -n '__postern_at 0' -l version -d 'print the version'
${heads.join('')}${members.join('')}${options.join('')}`;
}

const fishQuoted = (text: string) => `'${text.replaceAll('\\', '\\\\').replaceAll("'", "\\'")}'`;

function fishValue({ value, values }: Option): string {
  if (value === undefined) return '';
  return values ? ` -x -a '${values.join(' ')}'` : value === 'FILE' ? ' -r -F' : ' -x';
}

/** Options with a list of values, each name once: it means the same in every command. */
function valuesOf(tree: readonly Head[]): readonly (readonly [string, readonly string[]])[] {
  return [
    ...new Map(
      allLeaves(tree)
        .flatMap(({ options }) => options)
        .flatMap(({ name, values }) => (values ? [[name, values] as const] : [])),
    ),
  ];
}

/** Options whose value is a file, or those with any other value, without a list. */
function valued(tree: readonly Head[], isFile: boolean): readonly string[] {
  const found = allLeaves(tree)
    .flatMap(({ options }) => options)
    .filter(({ value, values }) => value !== undefined && !values && (value === 'FILE') === isFile);
  return [
    ...new Set(found.flatMap(({ name, short }) => (short === undefined ? [`--${name}`] : [`--${name}`, `-${short}`]))),
  ];
}
