import { readFile } from 'node:fs/promises';
import { request as plainRequest } from 'node:http';
import { request } from 'node:https';
import { join } from 'node:path';
import { z } from 'zod';
import { bareHost, isLoopback, reachableHost, withPort } from '../base/networks.ts';
import { parseJson } from '../base/schema.ts';
import { hasOwnStore } from '../config.ts';
import { sameName } from '../dns/types.ts';
import { type Check, type CheckContext, type Finding, fault, isLocal, ok, skipped, warning } from './finding.ts';
import { isOwnAddress, publishedAddresses } from './published.ts';

/** How long a web server may take to answer. */
const ANSWER_MS = 5000;
/** Much more than our answer has. */
const MAX_BYTES = 10_000;

/** The public URL reaches this daemon at each of its addresses, over TLS. */
export const publicUrl: Check = {
  name: 'public URL',
  async *run(world) {
    const { settings, resolver, listeners } = world;
    const url = new URL(settings.public_url);
    const check = 'public URL';
    if (isLocal(world)) return yield skipped(check, `${settings.public_url}; every listener is on loopback`);
    if (url.hostname === settings.http.listen.host || sameName(url.hostname, 'localhost')) {
      return yield warning(
        check,
        `${settings.public_url} is a local address`,
        'Set public_url to the https:// URL of the reverse proxy in front of http.listen.',
      );
    }
    const addresses = await publishedAddresses(resolver, bareHost(url));
    if (addresses === undefined) return yield skipped(check, `no DNS answer for ${url.hostname}`);
    if (addresses.length === 0)
      return yield fault(
        check,
        `${url.hostname} has no address in the DNS`,
        `Publish one, or correct public_url: links in mail use ${settings.public_url}.`,
      );
    const { host, port } = listeners.http;
    const own = await visit(new URL(`http://${withPort(host, port)}`), reachableHost(host));
    const instance = own instanceof Error ? undefined : instanceOf(own);
    const found = await Promise.all(
      addresses.map(async (address) =>
        judge(url, address, await visitAsClient(url, address, world.root), { instance, world }),
      ),
    );
    const bad = found.filter(({ verdict }) => verdict !== 'ok');
    yield* bad;
    if (bad.length > 0) return;
    const local = addresses.filter(isLoopback);
    if (local.length > 0)
      return yield warning(
        check,
        `${settings.public_url} reaches this daemon, but by an address that others cannot reach (${local.join(', ')})`,
        `Publish the public address of this host for ${url.hostname}. If it is published already, the resolver ` +
          'answers from /etc/hosts: correct it there.',
      );
    if (url.protocol !== 'https:')
      return yield warning(
        check,
        `${settings.public_url} is not encrypted`,
        'API keys travel in plaintext: put a TLS proxy in front and set public_url to its https:// URL.',
      );
    yield ok(check, `${settings.public_url} reaches this daemon (${addresses.join(', ')})`);
  },
};

/** The answer of a web server to GET /healthz. */
interface Answer {
  readonly status: number;
  readonly location: string | undefined;
  readonly body: string;
}

/** The files of the system's root certificates: on Debian, Fedora and derivatives. */
const AUTHORITIES = ['etc/ssl/certs/ca-certificates.crt', 'etc/pki/tls/certs/ca-bundle.crt'];

/**
 * Visits the URL like a client: with a certificate trusted by Node or by the system, to which the operator may have
 * added an authority. The large file of authorities is read only if needed.
 */
async function visitAsClient(url: URL, address: string, root: string): Promise<Answer | Error> {
  const answer = await visit(url, address);
  if (!(answer instanceof Error) || !/^(?:UNABLE_TO|SELF_SIGNED|DEPTH_ZERO)/.test(codeOf(answer))) return answer;
  for (const path of AUTHORITIES) {
    const ca = await readFile(join(root, path), 'utf8').catch(() => undefined);
    if (ca !== undefined) return visit(url, address, ca);
  }
  return answer;
}

const codeOf = (error: Error) => ('code' in error ? String(error.code) : '');

/** Asks for /healthz below a URL at one address, with the name of the URL in TLS. */
function visit(base: URL, address: string, ca?: string): Promise<Answer | Error> {
  const { protocol, port, host, pathname } = base;
  const isSecure = protocol === 'https:';
  return new Promise((resolve) => {
    const outgoing = (isSecure ? request : plainRequest)(
      {
        host: address,
        port: Number(port) || (isSecure ? 443 : 80),
        path: `${pathname.replace(/\/$/, '')}/healthz`,
        headers: { host },
        agent: false,
        signal: AbortSignal.timeout(ANSWER_MS),
        ...(isSecure && { servername: base.hostname }),
        ...(ca !== undefined && { ca }),
      },
      (answer) => {
        let body = '';
        answer.setEncoding('latin1');
        answer.on('data', (chunk: string) => {
          body += chunk;
          if (body.length > MAX_BYTES) answer.destroy();
        });
        const end = () => resolve({ status: answer.statusCode ?? 0, location: answer.headers.location, body });
        answer.on('end', end).on('error', end).on('close', end);
      },
    );
    outgoing.on('error', (error) => resolve(error));
    outgoing.end();
  });
}

const health = z.object({ status: z.literal('ok'), instance: z.string() });

/** The id of the daemon that answered; undefined if it was not Postern. */
const instanceOf = ({ status, body }: Answer): string | undefined =>
  status === 200 ? parseJson(health, body)?.instance : undefined;

interface Given {
  /** The id of the daemon on this host; undefined if it does not answer here. */
  readonly instance: string | undefined;
  readonly world: CheckContext;
}

function judge(url: URL, address: string, answer: Answer | Error, { instance, world }: Given): Finding {
  const check = 'public URL';
  const target = `${url.hostname} at ${address}`;
  if (answer instanceof Error) return unreachable(url, address, answer, world);
  const { status, location, body } = answer;
  const found = instanceOf(answer);
  if (found === undefined) {
    if (status >= 502 && status <= 504)
      return fault(
        check,
        `${target}: the web server answers ${status}`,
        `It does not reach http.listen (${withPort(world.listeners.http.host, world.listeners.http.port)}): correct ` +
          'its configuration, and check that the daemon runs.',
      );
    const what =
      location === undefined ? `${status} ${body.replace(/\s+/g, ' ').slice(0, 60)}` : `${status}, to ${location}`;
    return fault(
      check,
      `${target}: another server answers (${what.trim()})`,
      `Configure the web server there to pass all paths of ${url.host} to http.listen, or correct the address ` +
        'in the DNS.',
    );
  }
  if (instance === undefined)
    return warning(check, `${target}: Postern answers there, but not on this host`, 'Start the daemon.');
  if (found === instance) return ok(check, target);
  return hasOthers(world)
    ? ok(check, `${target}: another of our hosts`)
    : fault(
        check,
        `${target}: another Postern answers`,
        `Correct the address in the DNS, or the proxy configuration for ${url.host} there: links and calls ` +
          'reach a daemon that does not know them.',
      );
}

/** Whether other hosts share the work: a load balancer may choose any of them. */
function hasOthers({ settings }: CheckContext): boolean {
  const { hostname, inbound } = settings;
  return inbound.mx_hosts.some((name) => !sameName(name, hostname)) || !hasOwnStore(settings);
}

function unreachable(url: URL, address: string, error: Error, { settings: { acme, https } }: CheckContext): Finding {
  const check = 'public URL';
  const target = `${url.hostname} at ${address}`;
  const code = codeOf(error);
  const isCertificate = /CERT|SIGNATURE|ISSUER|ERR_TLS/.test(code);
  if (isCertificate)
    return fault(
      check,
      `${target}: ${error.message}`,
      acme.enabled
        ? `Clients refuse this certificate: see the certificate of ${url.hostname} above.`
        : `Clients refuse this certificate: get one for ${url.hostname} for the web server (list them with certbot ` +
            'certificates), and reload it.',
    );
  const isLate = error.name === 'AbortError' || error.name === 'TimeoutError' || code === 'ETIMEDOUT';
  const seen = isLate ? `no answer within ${ANSWER_MS / 1000} s` : error.message;
  if (isLoopback(address) || isOwnAddress(address) || !isLate)
    return fault(
      check,
      `${target}: ${seen}`,
      isOwnAddress(address)
        ? acme.enabled || https.listen.length > 0
          ? 'Open the port: systemctl enable postern-https.socket (or https.listen), then systemctl restart postern.'
          : `Start the web server (systemctl status nginx) and make it listen on ${address} (for IPv6, nginx needs ` +
            '"listen [::]:443 ssl").'
        : 'This is not an address of this host: correct it in the DNS, or start the server there.',
    );
  // Many routers do not forward connections from inside.
  return warning(
    check,
    `${target}: ${seen} from here`,
    'This is not an address of this host. If a router or load balancer forwards it to this host, test ' +
      `${url.origin}/healthz from another network.`,
  );
}

/** The console's host for mail reaches this daemon, and serves nothing else. */
export const mailOrigin: Check = {
  name: 'console.mail_origin',
  async *run({ settings }) {
    const check = 'console.mail_origin';
    const { mail_origin: url } = settings.console;
    if (url === '') return yield skipped(check, 'not set: mail is shown in a sandbox of the console');
    const { origin, host } = new URL(url);
    const answer = await fetch(origin, { redirect: 'manual', signal: AbortSignal.timeout(ANSWER_MS) }).catch(String);
    if (typeof answer === 'string')
      return yield warning(
        check,
        `${origin} cannot be reached from here: ${answer}`,
        `Point ${host} to the TLS proxy in front of http.listen, with a certificate; the console frames mail ` +
          'from there.',
      );
    await answer.body?.cancel();
    yield answer.status === WRONG_HOST
      ? ok(check, `${origin} serves only mail`)
      : fault(
          check,
          `${origin} answers ${answer.status} instead of ${WRONG_HOST}`,
          `Configure the proxy to pass requests for ${host} to http.listen with an unchanged Host header, and ` +
            'restart after a change of settings.',
        );
  },
};
/** The status of the console's host for mail for all other requests (RFC 9110 section 15.5.20). */
const WRONG_HOST = 421;
