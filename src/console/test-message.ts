import { Refusal } from '../api/errors.ts';
import { errorText } from '../base/errors.ts';
import { reachableHost, withPort } from '../base/networks.ts';
import type { AccountRow } from '../store/rows/accounts.ts';
import { Denial } from './denial.ts';

// The test message of a new installation. It is delivered like any other mail: over SMTP, by a route of the account, to
// a receiver of our own.

interface TestMessageDeps {
  /** Runs an operation for the account, by its rules. */
  readonly operate: (path: string, account: AccountRow, params: object) => Promise<unknown>;
  /** The addresses of the SMTP listeners. */
  readonly smtpAddresses: () => readonly { readonly address: string; readonly port: number }[];
}

/** The message, and its recipient. */
interface TestMessage {
  readonly address: string;
  /** The last reply of our SMTP listener, which names the message. */
  readonly reply: string;
}

/** A mailbox in a domain that is reserved for tests (RFC 6761), so that it gets no mail from outside. */
const MAILBOX = 'hello';
const domainOf = ({ number }: AccountRow) => `account-${number}.test`;
const RECEIVER = '/console/receiver/';
const SENDER = { name: 'Postern', address: 'console@postern.test' };
const TEXT =
  'This message arrived by SMTP, matched a route, and was posted to the receiver\n' +
  'that is built into Postern. Yours will be posted to your application.\n';
const TIMEOUT_MS = 30_000;

/** Sends a test message to a route of the account, which it adds if it is missing. `origin` is ours, on loopback. */
export async function sendTestMessage(
  account: AccountRow,
  origin: string,
  deps: TestMessageDeps,
): Promise<TestMessage> {
  const domain = domainOf(account);
  const [server] = deps.smtpAddresses();
  if (!server) throw new Denial('ValidationError', 'No SMTP listener is open');
  try {
    await addRoute(account, domain, `${origin}${RECEIVER}${account.id}`, deps);
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    throw new Denial('ValidationError', `The test route could not be added: ${error.message}`);
  }
  const address = `${MAILBOX}@${domain}`;
  return { address, reply: await send(server, address) };
}

async function addRoute(account: AccountRow, domain: string, url: string, { operate }: TestMessageDeps): Promise<void> {
  await operate('/inbound/add-domain', account, { domain });
  const known = await operate('/inbound/routes', account, { domain });
  const routes = Array.isArray(known) ? known : [];
  const mine = routes.find((route) => route.pattern === MAILBOX);
  if (!mine) await operate('/inbound/add-route', account, { domain, pattern: MAILBOX, url });
  else if (mine.url !== url) await operate('/inbound/update-route', account, { id: mine.id, url });
}

/** Sends the message to our own listener, and returns its last reply. */
async function send({ address, port }: { address: string; port: number }, to: string): Promise<string> {
  const host = reachableHost(address);
  const { createTransport } = await import('nodemailer');
  const transport = createTransport({
    host,
    port,
    name: 'postern.test',
    ignoreTLS: true, // the certificate is not for this address
    dnsTimeout: TIMEOUT_MS,
    connectionTimeout: TIMEOUT_MS,
    greetingTimeout: TIMEOUT_MS,
    socketTimeout: TIMEOUT_MS,
  });
  try {
    const { response } = await transport.sendMail({ from: SENDER, to, subject: 'It works', text: TEXT });
    return response;
  } catch (error) {
    throw new Denial('ValidationError', `SMTP at ${withPort(host, port)}: ${errorText(error)}`);
  }
}
