import { Agent, request } from 'undici';
import { z } from 'zod';
import { frozen } from '../base/frozen.ts';
import { parseJson } from '../base/schema.ts';

/** An answer of the certificate authority. */
export interface AcmeAnswer {
  readonly status: number;
  header(name: string): string | undefined;
  /** JSON, or PEM for a certificate. */
  readonly text: string;
}

/** A chain of certificates has less than 20 kB. */
const MAX_BYTES = 256 * 1024;
const TIMEOUT_MS = 30_000;

/** HTTPS to the certificate authority. `ca`: the root certificates to trust, PEM; undefined: Node's. */
export function createAcmeHttp(settings: { readonly ca: string | undefined; readonly userAgent: string }) {
  const agent = new Agent({
    connect: { timeout: TIMEOUT_MS, ...(settings.ca !== undefined && { ca: settings.ca }) },
    headersTimeout: TIMEOUT_MS,
    bodyTimeout: TIMEOUT_MS,
    maxResponseSize: MAX_BYTES,
  });
  return frozen({
    /** Sends a request; a body is a JWS. Throws `AcmeFault` if there is no answer. */
    async send(method: 'GET' | 'HEAD' | 'POST', url: string, body?: string): Promise<AcmeAnswer> {
      try {
        const answer = await request(url, {
          method,
          dispatcher: agent,
          headers: {
            'user-agent': settings.userAgent,
            ...(body !== undefined && { 'content-type': 'application/jose+json' }),
          },
          ...(body !== undefined && { body }),
        });
        const text = await answer.body.text();
        const { headers } = answer;
        return {
          status: answer.statusCode,
          header: (name) => [headers[name] ?? []].flat()[0],
          text,
        };
      } catch (error) {
        const reason = error instanceof Error ? error.message || error.name : String(error);
        throw new AcmeFault({ type: 'unreachable', detail: `${new URL(url).host} cannot be reached: ${reason}` });
      }
    },
    stop: () => agent.destroy(),
  });
}

export type AcmeHttp = ReturnType<typeof createAcmeHttp>;

/** A problem document (RFC 9457); `type` without its prefix, such as `rateLimited`. */
interface Problem {
  readonly type: string;
  readonly detail: string;
  /** How long the authority asks us to wait. */
  readonly retryAfterMs?: number | undefined;
}

/** The authority refused, or could not be reached. */
export class AcmeFault extends Error {
  override readonly name = 'AcmeFault';
  readonly type: string;
  readonly retryAfterMs: number | undefined;
  constructor({ type, detail, retryAfterMs }: Problem) {
    super(detail);
    this.type = type;
    this.retryAfterMs = retryAfterMs;
  }
}

const PREFIX = 'urn:ietf:params:acme:error:';

export const problemShape = z.object({
  type: z.string().default('about:blank'),
  detail: z.string().default('no reason given'),
});

/** The fault that an answer reports. `now`: for a Retry-After that is a date. */
export function acmeFaultOf(answer: AcmeAnswer, now: number): AcmeFault {
  const retryAfterMs = retryAfterOf(answer, now);
  const read = parseJson(problemShape, answer.text);
  if (!read) return new AcmeFault({ type: 'unknown', detail: `it answered ${answer.status}`, retryAfterMs });
  return new AcmeFault({ ...toProblem(read), retryAfterMs });
}

export const toProblem = ({ type, detail }: z.output<typeof problemShape>): Problem => ({
  type: type.startsWith(PREFIX) ? type.slice(PREFIX.length) : type,
  detail,
});

/** What to do about a problem of RFC 8555 section 6.7. `authority`: its names in CAA records. */
export function adviceOn(type: string, name: string, authority: readonly string[]): string {
  const allowed = authority.join(' or ') || 'the authority';
  switch (type) {
    case 'connection':
      return `open port 80 of ${name} to the internet: the authority must reach this host there`;
    case 'dns':
      return `publish an A or AAAA record of ${name} with the address of this host`;
    case 'unauthorized':
    case 'incorrectResponse':
      return `another server answers on port 80 of ${name}: correct its address in the DNS, for IPv6 too`;
    case 'caa':
      return `add a CAA record for ${name} that allows ${allowed}, or remove those there`;
    case 'rateLimited':
      return 'the authority limits orders; the next one waits as it asks';
    case 'rejectedIdentifier':
      return `the authority does not certify ${name}`;
    case 'externalAccountRequired':
      return 'set acme.eab_key_id and acme.eab_hmac_key to the values that the authority gave you';
    case 'invalidContact':
    case 'unsupportedContact':
      return 'set acme.email to an address that exists';
    case 'unreachable':
      return 'check that this host can connect to the authority (acme.directory), and acme.ca_file';
    default:
      return 'it is tried again by itself';
  }
}

/** Retry-After in milliseconds from now: seconds, or a date. */
export function retryAfterOf(answer: Pick<AcmeAnswer, 'header'>, now: number): number | undefined {
  const text = answer.header('retry-after')?.trim() ?? '';
  const ms = /^\d{1,9}$/.test(text) ? Number(text) * 1000 : Date.parse(text) - now;
  return Number.isFinite(ms) && ms > 0 ? ms : undefined;
}
