import type { IncomingMessage } from 'node:http';
import { isLoopback, isLoopbackName, normalizeAddress } from '../base/networks.ts';
import { Denial } from './denial.ts';

// Checks that a request comes from the console's own page. A browser sends the cookie with requests of other pages too,
// and a name that an attacker points to 127.0.0.1 reaches this listener (DNS rebinding).

/** The origin at which a browser sees the console. */
export interface Origin {
  /** `https://console.example.com`. */
  readonly url: string;
  readonly secure: boolean;
}

/**
 * The origin of a request, by its Host: that of `console.url`, or a loopback name with our port, directly from this
 * machine. Throws `Denial` for any other, such as a tracking domain of an account.
 */
export function originOf(req: IncomingMessage, consoleUrl: string): Origin {
  const host = req.headers.host?.toLowerCase() ?? '';
  if (consoleUrl !== '' && host === new URL(consoleUrl).host) {
    return { url: consoleUrl, secure: consoleUrl.startsWith('https:') };
  }
  if (isDirect(req) && isOurLoopback(host, req.socket.localPort)) return { url: `http://${host}`, secure: false };
  const where = consoleUrl === '' ? 'http://127.0.0.1, at the port of http.listen' : consoleUrl;
  throw new Denial('Wrong_Host', `Open the console at ${where} (console.url in the settings).`);
}

/** Whether a request names the host of `origin`. */
export function isFor({ headers }: IncomingMessage, origin: string): boolean {
  const { protocol, host } = new URL(origin);
  const given = `${protocol}//${headers.host}`;
  // `example.com.` is the same host, and so is one with the default port of the scheme.
  return URL.canParse(given) && new URL(given).host.replace(/\.(?=:|$)/, '') === host;
}

/** Whether the client is on this machine, and not behind a proxy on it. */
function isDirect({ socket, headers }: IncomingMessage): boolean {
  const forwarded = headers['x-forwarded-for'] !== undefined || headers.forwarded !== undefined;
  return !forwarded && isLoopback(normalizeAddress(socket.remoteAddress ?? '') ?? '');
}

function isOurLoopback(host: string, port: number | undefined): boolean {
  const origin = `http://${host}`;
  if (!URL.canParse(origin)) return false;
  const url = new URL(origin);
  return url.origin === origin && isLoopbackName(url.hostname) && Number(url.port || 80) === port;
}

/**
 * Throws `Denial` unless the console's own page sent the request. `Sec-Fetch-Site` and `Origin` are set by the
 * browser, and no page can change them; programs without either have no business here.
 */
export function mustBeOurPage({ headers }: IncomingMessage, { url }: Origin): void {
  const site = headers['sec-fetch-site'];
  const foreign = headers.origin !== undefined && headers.origin !== url;
  if (foreign || (site === undefined ? headers.origin === undefined : site !== 'same-origin')) {
    throw new Denial('Cross_Site', `Requests are accepted only from the page at ${url}/console/.`);
  }
}

/** Throws `Denial` unless a write has the headers that a page of another origin cannot send without a preflight. */
export function mustBeWrite({ headers }: IncomingMessage): void {
  const isJson = /^application\/json(?:;|$)/i.test(headers['content-type'] ?? '');
  if (headers['postern-console'] !== '1' || !isJson) {
    throw new Denial('Cross_Site', 'A write needs Content-Type: application/json and Postern-Console: 1.');
  }
}
