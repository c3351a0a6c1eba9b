/** What MAIL FROM or RCPT TO said: the path without brackets and its parameters, names in upper case. */
export interface PathCommand {
  readonly path: string;
  readonly params: ReadonlyMap<string, string | true>;
}

/** path: the address is not written as one · params: a parameter is malformed or comes twice. */
export type PathFault = 'path' | 'params';

// A quoted string may hold brackets and blanks. The two branches share no first character, so this is linear.
const PATH = /^[ \t]*<((?:"(?:[^"\\]|\\.)*"|[^<>"\\ \t])*)>(?:[ \t]+(.*))?$/;
// RFC 5321 section 4.1.2 esmtp-param; a value beyond ASCII comes with RFC 6531.
const PARAM = /^([a-z0-9][a-z0-9-]*)(?:=([^\s=\p{Cc}]+))?$/iu;

/** The verb of a command line, in upper case, and what stands behind it. */
export function splitCommand(line: string): { readonly verb: string; readonly rest: string } {
  const end = line.indexOf(' ');
  if (end < 0) return { verb: line.toUpperCase(), rest: '' };
  return { verb: line.slice(0, end).toUpperCase(), rest: line.slice(end + 1).trim() };
}

// RFC 5321 section 4.1.2 A-d-l: the hosts that a message once was to pass on its way. Labels are looked at no closer than that.
const SOURCE_ROUTE = /^@[^@,:\s"<>[\]\\]+(?:,@[^@,:\s"<>[\]\\]+)*:(?=.+@)/;

/**
 * Reads what stands behind MAIL (`keyword` FROM) or RCPT (`keyword` TO). A blank after the colon is let pass: many send one.
 * A source route is taken and ignored (RFC 5321 section 4.1.2 and appendix C): only the mailbox behind it counts.
 */
export function parsePath(keyword: 'FROM' | 'TO', rest: string): PathCommand | PathFault {
  const colon = rest.indexOf(':');
  if (rest.slice(0, colon).trimEnd().toUpperCase() !== keyword) return 'path';
  const parts = PATH.exec(rest.slice(colon + 1));
  const path = parts?.[1];
  if (path === undefined) return 'path';
  const params = parseParams(parts?.[2]);
  return params === undefined ? 'params' : { path: path.replace(SOURCE_ROUTE, ''), params };
}

const NONE: ReadonlyMap<string, string | true> = new Map();

function parseParams(text: string | undefined): ReadonlyMap<string, string | true> | undefined {
  if (text === undefined || text === '') return NONE;
  const params = new Map<string, string | true>();
  for (const word of text.split(/[ \t]+/)) {
    const parts = PARAM.exec(word);
    const name = parts?.[1]?.toUpperCase();
    if (name === undefined || params.has(name)) return undefined;
    params.set(name, parts?.[2] ?? true);
  }
  return params;
}
