import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import { createReadStream } from 'node:fs';
import type { Context } from 'koa';
import type { AccountParts } from '../api/account/account.ts';
import type { QueuedMail } from '../api/account/account-queue.ts';
import { htmlOf } from '../api/operations/messages/content.ts';
import type { Params } from '../api/requests/parameters.ts';
import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import { noteAction } from '../journal/actions.ts';
import type { Notes } from '../journal/types.ts';
import type { AccountRow } from '../store/rows/accounts.ts';
import type { Store } from '../store/store.ts';
import { accountFor } from './calls.ts';
import { Denial } from './denial.ts';
import type { Origin } from './guard.ts';
import type { Permissions } from './roles.ts';
import type { Sessions, Visitor } from './sessions.ts';

// The content of one mail, for the frame of the page and as downloads. It is untrusted: a browser shows the HTML in a
// sandbox without scripts, and the policy of the response blocks all requests; mail/sanitize/ removes what both allow.

/** The parts of an account that show its mail. */
type MailParts = Pick<AccountParts, 'queue' | 'views' | 'inTurn' | 'store' | 'messages' | 'now'>;

interface MailDeps {
  readonly store: Pick<Store, 'accounts'>;
  readonly permissions: Permissions;
  readonly sessions: Pick<Sessions, 'byId'>;
  readonly partsOf: (account: AccountRow) => MailParts;
  readonly notes: Notes;
  readonly clock: Clock;
}

const PART_NUMBER = /^\d{1,5}$/;
const LASTS_MS = 300_000;

const HEADERS = {
  'Cache-Control': 'no-store',
  'Cross-Origin-Resource-Policy': 'same-origin',
  'Referrer-Policy': 'no-referrer',
};

/** The permissions of a URL. Its holder can read it, but not change it. */
interface Grant {
  readonly account: string;
  readonly direction: 'in' | 'out';
  readonly id: string;
  readonly until: number;
  /** The id of the session that opened it, and the origin of its console. */
  readonly session: string;
  readonly console: string;
}

export type MailFrames = ReturnType<typeof createMailFrames>;

/** Shows mail in the console. All throw `Denial`. */
export function createMailFrames(
  { mailOrigin }: { readonly mailOrigin: string },
  { store, permissions, sessions, partsOf, notes, clock }: MailDeps,
) {
  // URLs are valid until the process ends.
  const secret = randomBytes(32);

  const sign = (claim: string) => createHmac('sha256', secret).update(claim).digest('base64url');

  function seal({ account, direction, id, until, session, console }: Grant): string {
    const claim = Buffer.from(JSON.stringify([account, direction, id, until, session, console])).toString('base64url');
    return `${claim}.${sign(claim)}`;
  }

  function read(sealed: string): Grant {
    const [claim = '', signature = ''] = sealed.split('.');
    const expected = sign(claim);
    const isOurs =
      signature.length === expected.length && timingSafeEqual(Buffer.from(signature), Buffer.from(expected));
    if (!isOurs) throw ended();
    const [account, direction, id, until, session, console] = JSON.parse(Buffer.from(claim, 'base64url').toString());
    if (until <= clock.now()) throw ended();
    return { account, direction, id, until, session, console };
  }

  /** The visitor's role or account may have changed. */
  function mustStillRead({ role, account }: Visitor, grant: Grant): void {
    const ofOther = account !== null && account !== grant.account;
    if (ofOther || !permissions.may(role, 'content')) throw mayNotRead();
  }

  /** Returns the grant of the visitor's session. Throws `Denial` if they may no longer see it. */
  function granted(ctx: Context, visitor: Visitor, sealed: string): Grant {
    const grant = read(sealed);
    if (grant.session !== visitor.session.id) throw ended();
    mustStillRead(visitor, grant);
    ctx.set(HEADERS);
    return grant;
  }

  /** Shows one mail of an account at a time, like its operations. */
  async function inTurn<T>({ account }: Grant, use: (parts: MailParts) => Promise<T>) {
    const row = await store.accounts.one({ id: account });
    if (!row) throw forgotten();
    const parts = partsOf(row);
    return parts.inTurn('content', () => use(parts));
  }

  async function withMail<T>(grant: Grant, use: (mail: QueuedMail, parts: MailParts) => Promise<T>) {
    const { id, direction } = grant;
    if (direction === 'out') throw new Denial('Unknown_Path', 'Sent mail can only be viewed.');
    return inTurn(grant, async (parts) => {
      const mail = await parts.queue.message(id);
      if (!mail) throw forgotten();
      try {
        return await use(mail, parts);
      } catch (error) {
        // It may have been deleted meanwhile.
        if (!(await parts.queue.message(id))) throw forgotten();
        throw error;
      }
    });
  }

  /** The HTML of sent mail. */
  const sentPage = (grant: Grant) =>
    inTurn(grant, async (parts) => {
      const document = await htmlOf(grant.id, parts);
      if (!document) throw forgotten();
      return parts.views.shown(document, 'page');
    });

  async function page(grant: Grant) {
    const shown =
      grant.direction === 'out'
        ? await sentPage(grant)
        : await withMail(grant, (mail, { views }) => views.shown(mail, 'page'));
    if (shown.kind !== 'page') throw new Denial('Unknown_Path', 'This message has no HTML.');
    return shown;
  }

  async function answerHtml(ctx: Context, grant: Grant): Promise<void> {
    const { html } = await page(grant);
    ctx.set('Content-Security-Policy', framePolicy(grant));
    ctx.type = 'text/html; charset=utf-8';
    ctx.body = html;
  }

  return frozen({
    /**
     * Opens the content of a mail for this session: of a delivery by `id`, of sent mail by `sent`. Returns its URL, and
     * that of its HTML for a frame; both are valid for five minutes, or until the session ends.
     */
    async open(ctx: Context, visitor: Visitor, origin: Origin, params: Params) {
      const sent = params.get('sent');
      const direction = sent === undefined ? 'in' : 'out';
      const account = await accountFor(ctx.get('postern-account'), visitor, store);
      const id = sent ?? params.get('id');
      if (typeof id !== 'string' || !(await isKept(direction, id, partsOf(account)))) throw forgotten();
      if (visitor.role === 'operator')
        noteAction({ notes, clock, by: visitor.name }, 'content viewed', 1, `/console/mail ${id}`, account.id);
      const until = clock.now() + LASTS_MS;
      const session = visitor.session.id;
      const url = `/console/mail/${seal({ account: account.id, direction, id, until, session, console: origin.url })}`;
      return { url, frame: `${mailOrigin}${url}/html` };
    },
    // The paths below `url`; `raw` and `part` are for received mail only.
    /** Shows the HTML if it has no origin of its own. */
    async html(ctx: Context, visitor: Visitor, sealed: string) {
      const grant = granted(ctx, visitor, sealed);
      if (mailOrigin !== '') throw new Denial('Unknown_Path', `HTML of mail is shown only at ${mailOrigin}.`);
      await answerHtml(ctx, grant);
    },
    async links(ctx: Context, visitor: Visitor, sealed: string) {
      const { links, leftOut, cut } = await page(granted(ctx, visitor, sealed));
      return { links, left_out: leftOut, truncated: cut };
    },
    async raw(ctx: Context, visitor: Visitor, sealed: string) {
      const grant = granted(ctx, visitor, sealed);
      const body = await withMail(grant, async (mail) => mail.body);
      download(ctx, `${grant.id}.eml`);
      ctx.body = body.kind === 'file' ? createReadStream(body.path) : Buffer.from(body.bytes);
    },
    async part(ctx: Context, visitor: Visitor, sealed: string, number: string) {
      const grant = granted(ctx, visitor, sealed);
      if (!PART_NUMBER.test(number)) throw noPart();
      const file = await withMail(grant, (mail, { views }) => views.shown(mail, Number(number)));
      if (file.kind !== 'file') throw noPart();
      download(ctx, file.name === '' ? `part-${number}` : file.name);
      ctx.body = Buffer.from(file.bytes.buffer, file.bytes.byteOffset, file.bytes.byteLength);
    },
    /** Shows the HTML at `mailOrigin`, where requests have no cookie. */
    async show(ctx: Context, sealed: string) {
      const grant = read(sealed);
      const visitor = await sessions.byId(grant.session);
      if (!visitor) throw ended();
      mustStillRead(visitor, grant);
      ctx.set(HEADERS);
      // Isolated from all other origins, even of the same site.
      ctx.set('Origin-Agent-Cluster', '?1');
      await answerHtml(ctx, grant);
    },
  });
}

async function isKept(
  direction: Grant['direction'],
  id: string,
  { queue, store, messages }: MailParts,
): Promise<boolean> {
  if (direction === 'in') return (await queue.message(id)) !== undefined;
  const row = await store.messages.one({ id });
  return Boolean(row?.delivery && (await messages.delivery(row.delivery)));
}

/** Nothing runs, nothing is fetched, and only the console may show it. */
function framePolicy({ console }: Grant): string {
  return [
    'sandbox',
    `default-src 'none'`,
    'img-src data:',
    `style-src 'unsafe-inline'`,
    `form-action 'none'`,
    `base-uri 'none'`,
    `frame-ancestors ${console}`,
  ].join('; ');
}

/** Always a download, whatever its declared type: a browser that displays a part may run scripts in it. */
function download(ctx: Context, name: string): void {
  ctx.set('Content-Security-Policy', `sandbox; default-src 'none'; frame-ancestors 'none'`);
  ctx.set('Content-Disposition', `attachment; filename*=UTF-8''${encodeURIComponent(name.toWellFormed())}`);
  ctx.type = 'application/octet-stream';
}

const noPart = () => new Denial('Unknown_Path', 'This message has no such part.');
const ended = () => new Denial('Link_Spent', 'This link has expired. Open the message again.');
const mayNotRead = () => new Denial('Not_Allowed', 'Your role cannot read the content of mail.');
const forgotten = () => new Denial('Unknown_Path', 'Not found on this host, or its content has expired.');
