import { Parser } from 'htmlparser2';

// What must hold of everything that leaves with other people's text in it. Each answers what is wrong; nothing is well.

const ONCE = ['from', 'to', 'subject', 'date', 'message-id', 'mime-version', 'content-type'];

/** These are what an early end of the header would cut off. */
const ALWAYS = ['from', 'date', 'message-id'];

/** A mail as it arrived. */
export function faultsOfMail(raw: string): string[] {
  const faults: string[] = [];
  const end = raw.indexOf('\r\n\r\n');
  const lines = raw.slice(0, end).split('\r\n');
  const names = lines
    .filter((line) => !/^[ \t]/.test(line))
    .map((line) => /^([!-9;-~]+):/.exec(line)?.[1]?.toLowerCase() ?? `no field: ${line.slice(0, 40)}`);
  if (/(?:^|[^\r])\n|\r(?!\n)/.test(raw)) faults.push('a bare CR or LF');
  if (raw.slice(0, end).includes('\0')) faults.push('a NUL in the header');
  faults.push(...names.filter((name) => name.startsWith('no field') || name.includes('injected')));
  faults.push(...ALWAYS.filter((name) => !names.includes(name)).map((name) => `no ${name}`));
  faults.push(
    ...ONCE.filter((name) => names.filter((other) => other === name).length > 1).map((name) => `${name} twice`),
  );
  if (lines.some((line) => Buffer.byteLength(line, 'latin1') > 998)) faults.push('a line of more than 998 octets');
  if (/^INJECTED/m.test(raw.slice(end + 4, end + 100))) faults.push('a body of the attacker');
  return faults;
}

/** Columns of addresses, which are never changed: what stands there is an address, and no formula that computes. */
const ADDRESSES: ReadonlySet<string> = new Set(['email', 'Email Address', 'Sender']);

/** Cells of a table. */
export function faultsOfCsv(lines: readonly (readonly string[])[]): string[] {
  const [header = []] = lines;
  return lines.flatMap((line, n) => [
    ...(line.length === header.length ? [] : [`line ${n} has ${line.length} cells and not ${header.length}`]),
    ...line
      .filter(
        (cell, column) => !ADDRESSES.has(header[column] ?? '') && /^[=+\-@\t\r\n\0\uff1d\uff0b\uff0d\uff20]/.test(cell),
      )
      .map((cell) => `a formula: ${JSON.stringify(cell.slice(0, 40))}`),
  ]);
}

/** One line of a log, as it was written; `secrets` may stand nowhere. */
export function faultsOfLogLine(line: string, secrets: readonly string[]): string[] {
  const faults = secrets
    .filter((secret) => line.includes(secret))
    .map((secret) => `${secret} in ${line.slice(0, 200)}`);
  if (!line.endsWith('\n') || /[\p{Cc}\p{Cf}\u2028\u2029]/u.test(line.slice(0, -1)))
    faults.push(`control characters in ${JSON.stringify(line.slice(0, 200))}`);
  try {
    JSON.parse(line);
  } catch {
    faults.push(`no JSON: ${line.slice(0, 200)}`);
  }
  return faults;
}

/** The tags of a page with the names of their attributes, in order: text of others must not add to them. */
export function tagsOf(html: string): string {
  const tags: string[] = [];
  const parser = new Parser({
    onopentag: (name, attributes) => {
      tags.push(`${name}(${Object.keys(attributes).join()})`);
    },
  });
  parser.end(html);
  return tags.join(' ');
}
