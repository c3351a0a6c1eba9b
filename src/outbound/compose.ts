import { createPrivateKey, type KeyObject } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { bounceAddress } from '../mail/returns/address.ts';
import { TooLong } from '../mail/too-long.ts';
import { composeDocument } from './compose/document.ts';
import { composeDraft, parseDraft } from './compose/draft.ts';
import { createPersonal, type Inline } from './compose/personal.ts';
import { sign } from './compose/sign.ts';
import { mostOctets, TooLarge } from './compose/too-large.ts';
import type { Composed, ComposeJob } from './types.ts';

/** Keys that are kept at once, of some kilobytes each. */
const MOST_KEYS = 500;

/**
 * Makes the message of one recipient out of what the account handed over: merge tags, tracking, unsubscribing, return path and DKIM.
 * The same job gives the same bytes. Throws `TooLarge` for what no server would take, however often it is tried, and
 * `FaultyTemplate` for what cannot be merged; anything else that is thrown is a fault of ours.
 */
export function composeMail(job: ComposeJob): Promise<Composed> {
  return createComposer()(job);
}

/** `composeMail` that keeps the keys it has read, and what writes style sheets into elements: a signature with one that was used before takes half the time. */
export function createComposer(): (job: ComposeJob) => Promise<Composed> {
  const keys = new Map<string, KeyObject>();
  let inlining: Promise<Inline> | undefined;
  // Few messages ask for it, and it is a lot of code.
  const inliner = () =>
    (inlining ??= import('../mail/compose/inline-css.ts').then(({ createInliner }) => createInliner()));
  const keyOf = (pem: string) => {
    const key = keys.get(pem) ?? createPrivateKey(pem);
    if (keys.size >= MOST_KEYS) keys.clear();
    keys.set(pem, key);
    return key;
  };
  return async (job) => {
    const { settings, accountNumber, id, dkim } = job;
    const body = await load(job);
    const { message, links } = await written(
      body,
      job,
      job.outgoing.extras?.inlineCss === true ? await inliner() : undefined,
    );
    const signed = dkim ? sign(message, { ...dkim, privateKey: keyOf(dkim.privateKey) }) : message;
    const trace = Buffer.from(settings.trace);
    if (trace.length + signed.length > mostOctets(body.length)) throw new TooLarge();
    // Memory of its own, which a thread may hand over: small buffers of Node's share theirs.
    const bytes = new Uint8Array(trace.length + signed.length);
    bytes.set(trace);
    bytes.set(signed, trace.length);
    const { secret, returnDomain, ownReturns } = settings;
    return {
      bytes,
      links,
      mailFrom: bounceAddress(secret, accountNumber, id, returnDomain, ownReturns ? returnDomain : ''),
    };
  };
}

interface Written {
  readonly message: Buffer;
  readonly links: readonly string[];
}

async function written(body: Buffer, job: ComposeJob, inline: Inline | undefined): Promise<Written> {
  try {
    const personal = createPersonal(job, inline);
    const message =
      job.outgoing.form === 'draft'
        ? await composeDraft(parseDraft(body), job, personal)
        : composeDocument(body, job, personal);
    return { message, links: personal.followed() };
  } catch (error) {
    throw error instanceof TooLong ? new TooLarge() : error;
  }
}

async function load({ body }: ComposeJob): Promise<Buffer> {
  if (body.kind === 'blob') return readFile(body.path);
  return Buffer.from(body.bytes.buffer, body.bytes.byteOffset, body.bytes.byteLength);
}
