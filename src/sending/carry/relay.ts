/** A server that takes all our mail and carries it on. */
export interface Relay {
  readonly host: string;
  readonly port: number;
  /** TLS from the first byte (smtps). */
  readonly secure: boolean;
  readonly auth: { readonly user: string; readonly pass: string } | undefined;
}

const SUBMISSIONS_PORT = 465; // RFC 8314 section 3.3
const SUBMISSION_PORT = 587; // RFC 6409 section 3.1

/** Reads `smtp://[user:password@]host[:port]` or `smtps://…`; user and password are percent-encoded. Undefined for anything else. */
export function parseRelay(text: string): Relay | undefined {
  const url = /^smtps?:\/\/[^/]/.test(text) ? URL.parse(text) : null;
  if (!url || url.hostname === '' || !/^\/?$/.test(url.pathname) || url.search !== '' || url.hash !== '')
    return undefined;
  const secure = url.protocol === 'smtps:';
  const auth = readAuth(url);
  if (auth === 'wrong') return undefined;
  return {
    host: url.hostname.replace(/^\[(.*)\]$/, '$1'),
    port: Number(url.port) || (secure ? SUBMISSIONS_PORT : SUBMISSION_PORT),
    secure,
    auth,
  };
}

function readAuth({ username, password }: URL): Relay['auth'] | 'wrong' {
  if (username === '') return password === '' ? undefined : 'wrong';
  try {
    return { user: decodeURIComponent(username), pass: decodeURIComponent(password) };
  } catch {
    return 'wrong';
  }
}
