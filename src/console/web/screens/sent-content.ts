import { h } from '../h.ts';
import { useCall } from '../load.ts';
import { Headers, Loading, Notice, Tabs } from '../parts/elements.ts';
import { plain, size } from '../parts/text.ts';
import { go, location, withQuery } from '../router.ts';
import { may, person } from '../session.ts';
import { HtmlTab } from './mail-content.ts';

/** The content of a message out. */
export function SentContentTabs({ id }: { readonly id: string }) {
  const mayRead = person.value?.reads_content === true && may('messages/content');
  const loaded = useCall('messages/content', mayRead ? { id } : undefined);
  const { data, error } = loaded;
  if (!mayRead) return h(Notice, { title: 'You do not have access to message content' });
  if (error?.kind === 'Unknown_Message') return h(Notice, { title: 'Content deleted or not available, history kept' });
  if (error || !data) return h(Loading, { of: loaded, rows: 5 });
  const { text, html, attachments } = data;
  const fields = Object.entries(data.headers).flatMap(([name, values]) =>
    (typeof values === 'string' ? [values] : values).map((value) => ({ name, value })),
  );
  const tabs = [
    ...(text === null ? [] : [{ id: 'text', label: 'Text' }]),
    ...(html === null
      ? []
      : [
          { id: 'html', label: 'HTML' },
          { id: 'source', label: 'HTML source' },
        ]),
    { id: 'headers', label: `Headers ${fields.length}` },
    { id: 'files', label: `Attachments ${attachments.length}` },
  ];
  const wanted = location.value.query.get('tab');
  const chosen = tabs.find((tab) => tab.id === wanted)?.id ?? tabs[0]?.id ?? 'headers';
  return h('div', [
    h(Tabs, { tabs, chosen, label: 'Content', onChoose: (tab) => go(withQuery({ tab }), true) }, [
      chosen === 'text' && h('pre.mail-text', { tabIndex: 0, dir: 'auto' }, plain(text ?? '')),
      chosen === 'html' && h(HtmlTab, { wanted: { sent: id } }),
      chosen === 'source' && h('pre.code', { tabIndex: 0, dir: 'ltr' }, plain(html ?? '')),
      chosen === 'headers' &&
        (fields.length === 0 ? h('p.faint', 'None besides those that Postern adds.') : h(Headers, { fields })),
      chosen === 'files' &&
        (attachments.length === 0
          ? h('p.faint', 'No attachments')
          : h('ul.rows.parts', [
              attachments.map(({ name, type, content }, i) =>
                h('li', { key: i }, [
                  h('span.type', plain(type)),
                  h('span.name', { dir: 'auto' }, plain(name)),
                  h('span.size', size(Math.floor((content.length * 3) / 4))),
                ]),
              ),
            ])),
    ]),
  ]);
}
