import { ask, toFailed } from '../call.ts';
import { h } from '../h.ts';
import { useLoad } from '../load.ts';
import { Loading, Notice } from '../parts/elements.ts';
import { count, plain, size } from '../parts/text.ts';
import { account } from '../session.ts';

// Content of a mail that does not go through an operation: its HTML in a frame, its bytes, its files.

interface Opened {
  /** Where the content is, and its HTML for a frame, for five minutes. */
  readonly url: string;
  readonly frame: string;
}

/** A mail that came in, or the message out that is meant. */
type Wanted = { readonly id: string } | { readonly sent: string };

/** Opens the content of a mail that came in for this session. */
export function openMail(id: string, stop?: AbortSignal): Promise<Opened> {
  return open({ id }, stop);
}

const open = (wanted: Wanted, stop?: AbortSignal) => ask<Opened>('POST', '/console/mail', wanted, stop);

interface Links {
  readonly links: readonly { readonly text: string; readonly href: string }[];
  /** Pictures that were left out because they would have to be fetched. */
  readonly left_out: number;
  readonly truncated: boolean;
}

/** The HTML, in a frame that runs nothing and asks for nothing. */
export function HtmlTab({ wanted }: { readonly wanted: Wanted }) {
  const loaded = useLoad(
    `html ${account.value?.id} ${Object.values(wanted).join()} ${Math.floor(Date.now() / 240_000)}`,
    async (stop) => {
      const { url, frame } = await open(wanted, stop);
      return { frame, ...(await ask<Links>('GET', `${url}/links`, undefined, stop)) };
    },
  );
  const { data, error } = loaded;
  if (error || !data) return h(Loading, { of: loaded, rows: 6 });
  const { frame, links, left_out: leftOut, truncated } = data;
  return h('div', [
    h('p.faint', [
      'Shown without scripts, forms, links and remote content',
      leftOut > 0 ? `; ${count(leftOut, 'image')} blocked.` : '.',
      truncated && ('id' in wanted ? ' Truncated; download the message to see all of it.' : ' Truncated.'),
    ]),
    h('iframe.mail-frame', { sandbox: '', src: frame, title: 'HTML of the message' }),
    links.length > 0 &&
      h('details.links', [
        h('summary', count(links.length, 'link')),
        h('ul', [
          links.map(({ text, href }, i) =>
            h('li', { key: i }, [h('span', { dir: 'auto' }, [plain(text) || '(no text)']), h('code', plain(href))]),
          ),
        ]),
      ]),
  ]);
}

/** How many bytes are shown; the rest is in the download. */
const MAX_SHOWN = 200_000;

/** The message as it arrived. */
export function RawTab({ id, bytes }: { readonly id: string; readonly bytes: number }) {
  const loaded = useLoad(`raw ${account.value?.id} ${id}`, async (stop) => {
    const { url } = await openMail(id, stop);
    return readStart(`${url}/raw`, stop);
  });
  const { data, error } = loaded;
  if (error || data === undefined) return h(Loading, { of: loaded, rows: 8 });
  return h('div', [
    bytes > MAX_SHOWN &&
      h(Notice, {
        title: `Showing the first ${size(MAX_SHOWN)} of ${size(bytes)}; download the message for the rest`,
      }),
    h('pre.code', { tabIndex: 0, dir: 'ltr' }, plain(data)),
  ]);
}

async function readStart(url: string, stop: AbortSignal): Promise<string> {
  const answer = await fetch(url, { signal: stop });
  if (!answer.ok || !answer.body) throw await toFailed(answer, url);
  const decoder = new TextDecoder();
  const reader = answer.body.getReader();
  let text = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (value) text += decoder.decode(value, { stream: true });
    if (!done && text.length < MAX_SHOWN) continue;
    await reader.cancel();
    return text.slice(0, MAX_SHOWN).replaceAll('\r\n', '\n');
  }
}
