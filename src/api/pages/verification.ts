import type { Context } from 'koa';
import type { Link, SenderDomains } from '../../sending/domains/sender-domains.ts';
import { StoreAway } from '../../store/driver/port.ts';
import { answerPage, LINK_NOT_FOUND, type SmallPage } from './small-page.ts';

/** Answers GET and POST of a verification link. Only POST verifies: mail scanners follow the links that they find. */
export function createVerifyPage(
  senderDomains: Pick<SenderDomains, 'look' | 'follow'>,
): (ctx: Context, token: string) => Promise<void> {
  return async (ctx, token) =>
    answerPage(ctx, await pageFor(token, ctx.method === 'POST' ? senderDomains.follow : senderDomains.look));
}

/** The format of tokens from `Ids.key`. */
const TOKEN = /^[\w-]{22}$/;

async function pageFor(token: string, read: (token: string) => Promise<Link>): Promise<SmallPage> {
  if (!TOKEN.test(token)) return LINK_NOT_FOUND;
  try {
    return toPage(await read(token));
  } catch (error) {
    if (!(error instanceof StoreAway)) throw error;
    return {
      status: 503,
      title: 'Please try again in a moment',
      main: '<p>The service cannot check this link right now. The link stays valid.</p>',
    };
  }
}

/** The domain is in A-labels, which need no HTML escaping. */
function toPage(link: Link): SmallPage {
  switch (link.state) {
    case 'open':
      return {
        status: 200,
        title: `Is ${link.domain} yours?`,
        main: `<p>Someone asked to send mail from <strong>${link.domain}</strong>. If it was you, confirm it.</p>
<form method="post"><button type="submit">Yes, verify ${link.domain}</button></form>
<p class="soft">If it was not you, close this page. Nothing has happened yet.</p>`,
      };
    case 'done':
      return {
        status: 200,
        title: 'Thank you',
        main: `<p><strong>${link.domain}</strong> is verified. You can close this page.</p>`,
      };
    case 'used':
      return {
        status: 410,
        title: 'This link has been used',
        main: '<p>It works only once, and has already been used. There is nothing left to do.</p>',
      };
    case 'expired':
      return {
        status: 410,
        title: 'This link has expired',
        main: '<p>It was valid for seven days. Please request a new one where you requested this one.</p>',
      };
    case 'unknown':
      return LINK_NOT_FOUND;
  }
}
