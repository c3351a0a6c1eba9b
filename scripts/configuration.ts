/**
 * Makes docs/configuration.md from the text of config/default.yaml: every setting with its default, its comment and its
 * environment variable.
 */
export function configurationDoc(yaml: string): string {
  const out = [
    '# Settings',
    '',
    '<!-- Written by `npm run docs` from config/default.yaml; change that file. -->',
    '',
    'Put your changes in a settings file: `--config FILE` or `POSTERN_CONFIG`, with the Debian package ' +
      '`/etc/postern/postern.yaml`.',
    'It overrides these defaults, and an environment variable overrides both. Check a change with `postern config ' +
      'check`, then',
    'restart the daemon (`systemctl restart postern`). New certificate files need no restart.',
    '',
  ];
  for (const { path, value, comment } of readSettings(yaml)) {
    out.push(
      `## \`${path}\``,
      '',
      comment,
      '',
      `Default \`${value}\` · \`POSTERN_${path.toUpperCase().replaceAll('.', '__')}\``,
      '',
    );
  }
  return out.join('\n').trimEnd() + '\n';
}

export interface Shown {
  readonly path: string;
  readonly value: string;
  readonly comment: string;
}

/** A comment above several settings in a row is about all of them; that of a section stands with its first setting. */
export function* readSettings(yaml: string): Generator<Shown> {
  let comment: string[] = [];
  let section: string[] = [];
  let used = false;
  const parents: string[] = [];
  for (const line of yaml.split('\n')) {
    const [, indent = '', name, value = ''] = /^(\s*)(\w+):\s*(.*)$/.exec(line) ?? [];
    if (name !== undefined) {
      parents.length = indent.length / 2;
      if (value === '') {
        parents.push(name);
        section = used ? [] : comment; // right below a setting, the comment is that setting's
      } else {
        yield {
          path: [...parents, name].join('.'),
          value,
          comment: [section.join('\n'), comment.join('\n')].filter((part) => part !== '').join('\n\n'),
        };
        section = [];
      }
      used = true;
    } else {
      if (used) comment = [];
      used = false;
      if (/^\s*#/.test(line)) comment.push(line.replace(/^\s*# ?/, ''));
      else comment = [];
    }
  }
}
