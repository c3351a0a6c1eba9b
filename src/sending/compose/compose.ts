import { createPrivateKey, type KeyObject } from 'node:crypto';
import { readAll, sizeOf } from '../../base/bytes.ts';
import { createBoundedCache } from '../../base/cache.ts';
import { errorText } from '../../base/errors.ts';
import { frozen } from '../../base/frozen.ts';
import { escapeHtml } from '../../base/html.ts';
import type { ThreadTask } from '../../base/worker-tasks.ts';
import { assertAuthor, UnclearAuthor } from '../../mail/addresses/author.ts';
import { bounceAddress, toToken, unsubAddress } from '../../mail/addresses/return-address.ts';
import { toHtmlPage } from '../../mail/compose/plain-text.ts';
import { needSmtpUtf8, UnsendableField, withSendableHeader } from '../../mail/compose/sendable.ts';
import { createAnalyticsTagging, type LinkRewrite, rewriteHtml, rewriteText, withoutQuery } from '../../mail/links.ts';
import { RenderedTooLong, TemplateError } from '../../mail/template-errors.ts';
import { LONGEST_COUNTED_URL, MAX_COUNTED_URLS } from '../../store/rows/counters.ts';
import type { ComposedMessage, ComposeJob, ComposeReply } from '../types.ts';
import { composeDocument } from './document.ts';
import { composeDraft, parseDraft } from './draft.ts';
import { createFilling } from './merge-fields.ts';
import { sign } from './sign.ts';

/** Cached keys, some kilobytes each. */
const MAX_KEYS = 500;

/**
 * Creates a function that composes the message for one recipient from the submission: merge tags, tracking, unsubscribe
 * links, return path and DKIM. The same job gives the same bytes. It throws `TooLarge` if no server would accept the
 * message, `TemplateError` if it cannot be merged, `UnclearAuthor` if From does not name the sender alone, and
 * `UnsendableField` if a field has too long a line; any other error is a fault of ours. Parsed keys and the CSS inliner
 * are cached: signing with a cached key takes half the time.
 */
export function createCompose(): (
  job: ComposeJob,
) => Promise<ComposedMessage & { readonly bytes: Uint8Array<ArrayBuffer> }> {
  const keys = createBoundedCache<KeyObject>({ most: MAX_KEYS });
  let inlining: Promise<Inline> | undefined;
  // Loaded on demand: few messages need it, and it is a lot of code.
  const inliner = () =>
    (inlining ??= import('../../mail/compose/inline-css.ts').then(({ createInliner }) => createInliner()));
  const keyOf = (pem: string) => {
    const key = keys.get(pem) ?? createPrivateKey(pem);
    keys.set(pem, key);
    return key;
  };
  return async (job) => {
    const { settings, accountNumber, id, dkim } = job;
    const body = await readAll(job.body);
    const { message, links } = await written(
      body,
      job,
      job.outgoing.extras?.inlineCss === true ? await inliner() : undefined,
    );
    assertAuthor(message, job.outgoing.sender);
    const signed = dkim ? sign(message, { ...dkim, privateKey: keyOf(dkim.privateKey) }) : message;
    const trace = Buffer.from(settings.trace);
    if (trace.length + signed.length > mostOctets(body.length)) throw new TooLarge();
    // A buffer of its own, which a thread can transfer: small Node buffers share theirs.
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

/** The task that composes on a thread (composer.ts is the other end). Throws if the disk fails. */
export function createComposeTask(): ThreadTask<ComposeJob, ComposeReply> {
  const compose = createCompose();
  return async (job, guarded) => {
    try {
      const composed = await guarded(() => compose(job));
      return { value: { kind: 'composed', composed }, transfer: [composed.bytes.buffer] };
    } catch (error) {
      // an unreadable file is not the message's fault
      if (error instanceof Error && 'syscall' in error) throw error;
      const faulty = error instanceof TemplateError;
      const final =
        faulty || error instanceof TooLarge || error instanceof UnclearAuthor || error instanceof UnsendableField;
      const text = errorText(error);
      const reason = faulty ? `faulty template: ${text}` : text;
      return { value: { kind: 'refused', reason, final }, transfer: [] };
    }
  };
}

interface Message {
  readonly message: Buffer;
  readonly links: readonly string[];
}

async function written(body: Buffer, job: ComposeJob, inline: Inline | undefined): Promise<Message> {
  try {
    const personal = createPersonal(job, inline);
    const composed =
      job.outgoing.form === 'draft'
        ? await composeDraft(parseDraft(body), job, personal)
        : composeDocument(body, job, personal);
    // Merged values of fields may be long.
    const message = withSendableHeader(composed, {
      charset: () => '',
      utf8: needSmtpUtf8(job.recipient, job.outgoing.sender),
    });
    return { message, links: personal.followed() };
  } catch (error) {
    throw error instanceof RenderedTooLong ? new TooLarge() : error;
  }
}

/**
 * The personalization of a message for one recipient. All functions throw `RenderedTooLong` when their output grows too
 * long; filling also throws `TemplateError`.
 */
export type Personalization = ReturnType<typeof createPersonal>;

/** Inlines the style sheets of an HTML text. */
type Inline = (html: string) => string;

function createPersonal(job: ComposeJob, inline: Inline | undefined) {
  const { outgoing, settings, accountNumber, id } = job;
  const { secret, publicUrl } = settings;
  const most = mostOctets(sizeOf(job.body));
  const unsubUrl = `${publicUrl}/unsubscribe/${toToken(secret, 'unsub', accountNumber, id)}`;
  const links = createMessageLinks(job);
  const clicks = outgoing.trackClicks;
  const openUrl = `${publicUrl}/track/open/${toToken(secret, 'open', accountNumber, id)}`;
  const pixel = `<img src="${escapeHtml(openUrl)}" height="1" width="1" alt="">`;
  const { returnDomain } = settings;
  const unsubMailbox = unsubAddress(secret, accountNumber, id, returnDomain, settings.ownReturns ? returnDomain : '');
  return frozen({
    ...createFilling(job, unsubUrl, most),
    /** Whether links are tracked or changed, opens counted, or style sheets inlined. */
    tracks: outgoing.trackOpens || clicks !== 'none' || links.tags || inline !== undefined,
    /** Adds inlined style sheets, links and the open pixel to an HTML part; `withPixel` is true only for the first. */
    trackHtml(html: string, withPixel: boolean) {
      return rewriteHtml(
        inline ? inline(html) : html,
        {
          relink: links.relink(clicks === 'html' || clicks === 'all'),
          atEnd: outgoing.trackOpens && withPixel ? pixel : undefined,
        },
        most,
      );
    },
    trackText(text: string) {
      const relink = links.relink(clicks === 'text' || clicks === 'all');
      return relink ? rewriteText(text, relink, most) : text;
    },
    /** HTML for a filled text part, for a message without HTML. */
    toHtml: (text: string) => toHtmlPage(text, most),
    /** The links tracked so far, as reported in click events. */
    followed: links.followed,
    listUnsubscribe: [
      ['List-Unsubscribe', `<${unsubUrl}>, <mailto:${unsubMailbox}>`],
      ['List-Unsubscribe-Post', 'List-Unsubscribe=One-Click'], // RFC 8058 section 3.1
    ] as const,
    messageId: `<${id}@${settings.hostname}>`,
  });
}

/** Characters of an encoded link target. Servers (ours and Node's) read 16 KiB of header with the request line. */
const LONGEST_TARGET = 8000;
const CONTROLS = /\p{Cc}/u;
// encodeURIComponent leaves these, and some mail readers end a plain-text link before them.
const LEFT = /[!'()*]/g;

/** Rewrites the links of a message. */
function createMessageLinks({ outgoing, settings, accountNumber, id }: ComposeJob) {
  const { analytics, stripQuery } = outgoing.extras ?? {};
  const { secret, publicUrl, ownUrl = publicUrl } = settings;
  const links = new Map<string, string>();
  const followed = new Set<string>();
  const tag = analytics && createAnalyticsTagging(analytics, outgoing.sender);
  // Our own links: unsubscribing is not tracked, and a tracking link would be tracked twice.
  const isOurs = (url: string) =>
    [publicUrl, ownUrl].some((own) => url.startsWith(`${own}/unsubscribe/`) || url.startsWith(`${own}/track/`));

  function follow(given: string): string | undefined {
    const tagged = tag?.(given);
    const url = tagged ?? given;
    // a URL that could not be redirected to stays as it is
    if (!url.isWellFormed() || CONTROLS.test(url) || !URL.canParse(url)) return tagged;
    const target = encodeURIComponent(url).replace(LEFT, (char) => `%${char.charCodeAt(0).toString(16).toUpperCase()}`);
    if (target.length > LONGEST_TARGET) return tagged;
    const shown = stripQuery ? withoutQuery(url) : url;
    if (shown.length <= LONGEST_COUNTED_URL && followed.size < MAX_COUNTED_URLS) followed.add(shown);
    const token = toToken(secret, stripQuery ? 'bare-click' : 'click', accountNumber, id, url);
    return `${publicUrl}/track/click/${token}?u=${target}`;
  }

  function followOnce(url: string): string | undefined {
    if (isOurs(url)) return undefined;
    const link = links.get(url) ?? follow(url);
    if (link !== undefined) links.set(url, link);
    return link;
  }
  const tagOnly = tag && ((url: string) => (isOurs(url) ? undefined : tag(url)));
  return {
    /** Whether links are changed even without click tracking: analytics parameters are added to some. */
    tags: tag !== undefined,
    /** The rewriter for tracked links, or for untracked ones. */
    relink: (follows: boolean): LinkRewrite | undefined => (follows ? followOnce : tagOnly),
    /** The links tracked so far, each once, as reported in click events; at most 100. */
    followed: (): readonly string[] => [...followed],
  };
}

/** Octets of an outgoing message. Today's servers accept at least this much, and many no more. */
const MAX_COMPOSED = 25 * 1024 * 1024;
/** Accepted messages may keep their size, plus this many octets for additions. */
const MARGIN = 1024 * 1024;

/** The message exceeds the size limit: no server would accept it, now or later. */
export class TooLarge extends Error {
  override readonly name = 'TooLarge';
  constructor() {
    super('the message exceeds the size limit');
  }
}

/** The size limit, in octets, for a message submitted with `size` octets. */
function mostOctets(size: number): number {
  return Math.max(MAX_COMPOSED, size + MARGIN);
}
