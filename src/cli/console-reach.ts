import { request } from 'node:http';
import { isLoopback, isLoopbackName } from '../base/networks.ts';
import { onLoopbackOnly } from '../composition/slices.ts';
import { consoleOrigin } from '../config.ts';
import type { Settings } from '../settings.ts';

// Checks whether a sign-in link will reach the console, through the running daemon and the proxy in front of it.

/** How a link reaches the console. */
type ConsoleAccess =
  /** No link would open it; `text` names the missing setting. */
  | { readonly kind: 'off'; readonly text: string }
  /** `notes` are further hints for the person who opens the link. */
  | { readonly kind: 'on'; readonly notes: readonly string[] };

const ASK_MS = 3_000;
/** The status of the console for an unknown host name (RFC 9110 section 15.5.20). */
const WRONG_HOST = 421;

const OFF = 'The console is off. Set console.enabled: true in the settings file, then restart Postern.\n';

export async function reachConsole(settings: Settings): Promise<ConsoleAccess> {
  const { enabled } = settings.console;
  if (enabled === false) return { kind: 'off', text: OFF };
  const here = await askDaemon(settings);
  const isOn = here === undefined ? (enabled ?? onLoopbackOnly(settings, {})) : here !== 404;
  if (!isOn) return { kind: 'off', text: OFF };
  const origin = consoleOrigin(settings);
  const isPublic = origin !== undefined && !isLoopbackName(new URL(origin).hostname);
  if (!isPublic && !isHere(settings)) return { kind: 'off', text: noWay(settings) };
  const notes = [
    ...(here === undefined ? ['The daemon does not answer. Start it before you open the link.\n'] : []),
    ...(here === WRONG_HOST && isPublic ? [restart(origin)] : []),
    ...(isPublic ? await noteProxy(origin, settings) : noteHere(settings)),
  ];
  return { kind: 'on', notes };
}

/** Whether a browser on this host, or over SSH, reaches `http.listen` by a loopback address. */
function isHere({ http }: Settings): boolean {
  return isLoopback(http.listen.host) || isAny(http.listen.host);
}

const isAny = (host: string) => host === '0.0.0.0' || host === '::';

/** The status of the daemon for a sign-in page at the console's own host name; undefined without an answer. */
function askDaemon(settings: Settings): Promise<number | undefined> {
  const { host, port } = settings.http.listen;
  const origin = consoleOrigin(settings);
  const name = origin === undefined ? `127.0.0.1:${port}` : new URL(origin).host;
  const at = host === '0.0.0.0' ? '127.0.0.1' : host === '::' ? '::1' : host;
  return new Promise((resolve) => {
    const options = { host: at, port, path: '/console/', headers: { Host: name }, timeout: ASK_MS, agent: false };
    const asked = request(options, (answer) => {
      answer.resume();
      resolve(answer.statusCode);
    });
    asked.on('timeout', () => asked.destroy());
    asked.on('error', () => resolve(undefined));
    asked.end();
  });
}

/** A link of a host with listeners beyond loopback opens only on it. */
function noteHere(settings: Settings): readonly string[] {
  if (onLoopbackOnly(settings, {})) return [];
  const { port } = settings.http.listen;
  return [
    `The link opens on this host only, or over SSH: ssh -L ${port}:127.0.0.1:${port} ${settings.hostname}\n` +
      'For browsers elsewhere, set console.url (or public_url) to the https:// URL of the proxy, then restart ' +
      'Postern.\n',
  ];
}

const restart = (origin: string) =>
  `The running daemon does not use ${origin} as the URL of the console yet. Restart it to load console.url and ` +
  'public_url.\n';

const noWay = ({ http }: Settings) =>
  `No browser can reach the console: http.listen (${http.listen.host}) is not on loopback, and console.url is not ` +
  'set. Set console.url (or public_url) to the https:// URL of the proxy, then restart Postern.\n';

/** Hints about the proxy's answer to the link. A proxy that does not answer here may answer others. */
async function noteProxy(origin: string, settings: Settings): Promise<readonly string[]> {
  const answer = await fetch(`${origin}/console/`, { redirect: 'manual', signal: AbortSignal.timeout(ASK_MS) }).catch(
    () => undefined,
  );
  await answer?.body?.cancel();
  if (!answer || answer.status === 200) return [];
  const way = isHere(settings)
    ? `Until then, over SSH: ssh -L ${settings.http.listen.port}:127.0.0.1:${settings.http.listen.port} ` +
      `${settings.hostname}, and the same path at http://127.0.0.1:${settings.http.listen.port}\n`
    : '';
  const why =
    answer.status === WRONG_HOST
      ? `The proxy at ${origin} does not forward the Host header (nginx: proxy_set_header Host $host).`
      : `${origin}/console/ answers ${answer.status} instead of the console.`;
  return [`${why} See "TLS" in docs/operations.md.\n${way}`];
}
