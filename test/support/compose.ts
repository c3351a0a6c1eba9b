import { type ParsedMail, simpleParser } from 'mailparser';
import type { Draft, Outgoing } from '../../src/mail/outgoing.ts';
import { createCompose } from '../../src/sending/compose/compose.ts';
import type { ComposeJob, ComposeSettings } from '../../src/sending/types.ts';
import type { DkimKey } from './dns-keys.ts';

/** Composes one message, with nothing cached. */
export const composeMail = (job: ComposeJob) => createCompose()(job);

export const ID = '0123456789abcdef0123456789abcdef';
export const ACCOUNT = 7;
export const SECRET = 'a secret of the tests';
export const SETTINGS: ComposeSettings = {
  hostname: 'mx.postern.test',
  returnDomain: 'return.postern.test',
  publicUrl: 'https://postern.test',
  secret: SECRET,
  trace: '',
};
export const DRAFT: Draft = {
  html: null,
  text: null,
  to: [{ email: 'bob@example.net', name: null, type: 'to' }],
  headers: [],
  attachments: [],
  images: [],
};
/** Nothing is merged or tracked. */
export const OUTGOING: Outgoing = {
  sender: 'ann@example.com',
  fromName: 'Ann',
  subject: 'Hello',
  tags: [],
  template: null,
  subaccount: null,
  metadata: {},
  apiKey: null,
  trackOpens: false,
  trackClicks: 'none',
  globalVars: null,
  rcptVars: {},
  rcptMetadata: {},
  preserveRecipients: false,
  autoText: false,
  signingDomain: null,
  pool: null,
  form: 'draft',
};

type Changes = Partial<Omit<ComposeJob, 'outgoing' | 'settings' | 'dkim'>> & {
  outgoing?: Partial<Outgoing>;
  settings?: Partial<ComposeSettings>;
  dkim?: DkimKey;
};

/** A job of the composer; what is not given is as above. */
export function toJob(bytes: Uint8Array, { outgoing, settings, dkim, ...rest }: Changes = {}): ComposeJob {
  return {
    body: { kind: 'memory', bytes },
    recipient: 'bob@example.net',
    id: ID,
    accountNumber: ACCOUNT,
    at: Date.UTC(2026, 0, 5, 12),
    ...rest,
    outgoing: { ...OUTGOING, ...outgoing },
    settings: { ...SETTINGS, ...settings },
    dkim: dkim
      ? {
          domain: dkim.domain,
          selector: dkim.selector,
          privateKey: dkim.privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(),
        }
      : null,
  };
}

export interface Seen {
  readonly raw: Buffer;
  /** Header fields as they stand in the message, unfolded, in their order. */
  readonly fields: readonly string[];
  readonly mailFrom: string;
  readonly mail: ParsedMail;
}

async function see(job: ComposeJob): Promise<Seen> {
  const { bytes, mailFrom } = await composeMail(job);
  const raw = Buffer.from(bytes);
  const head = raw.toString('latin1').split('\r\n\r\n', 1)[0] ?? '';
  const mail = await simpleParser(raw, { skipHtmlToText: true, skipTextToHtml: true, skipImageLinks: true });
  return { raw, fields: head.replace(/\r\n[ \t]+/g, ' ').split('\r\n'), mailFrom, mail };
}

/** Composes a draft and parses what came out of it. */
export function sendDraft(draft: Partial<Draft>, changes: Changes = {}): Promise<Seen> {
  return see(toJob(Buffer.from(JSON.stringify({ ...DRAFT, ...draft })), changes));
}

/** Composes a MIME document (its lines, or its bytes) and parses what came out of it. */
export function sendDocument(document: readonly string[] | Buffer, changes: Changes = {}): Promise<Seen> {
  const bytes = Buffer.isBuffer(document) ? document : Buffer.from(document.map((line) => `${line}\r\n`).join(''));
  return see(toJob(bytes, { ...changes, outgoing: { form: 'mime', ...changes.outgoing } }));
}

/** The links of our own in a text: where they lead, by their kind. */
export function linksOf(text: string): { clicks: string[]; opens: number; unsubs: number } {
  const clicks = [...text.matchAll(/https:\/\/postern\.test\/track\/click\/[\w-]+\?u=([\w.%~-]*[\w%~-])/g)].map(
    ([, url = '']) => decodeURIComponent(url),
  );
  return {
    clicks,
    opens: text.split('https://postern.test/track/open/').length - 1,
    unsubs: text.split('https://postern.test/unsubscribe/').length - 1,
  };
}

/** Values of the fields with that name. */
export function valuesOf({ fields }: Seen, name: string): string[] {
  return fields
    .filter((field) => field.toLowerCase().startsWith(`${name.toLowerCase()}:`))
    .map((field) => field.slice(name.length + 1).trim());
}
