import { useState } from 'preact/hooks';
import { h } from '../h.ts';
import { useCall } from '../load.ts';
import { Field, Notice, Title } from '../parts/elements.ts';
import { LoadingOfHost, shownHost } from '../parts/hosts.ts';
import { count, plain } from '../parts/text.ts';
import type { HostSetting } from '../records.ts';
import { HostParts } from './host.ts';

/** The settings in force, and where each comes from. */
export function HostSettings() {
  const [words, setWords] = useState('');
  const loaded = useCall('host/settings', { host: shownHost.value });
  const { data } = loaded;
  const wanted = words.trim().toLowerCase();
  const found = data?.settings.filter((one) =>
    `${one.path} ${textOf(one.value)} ${one.origin}`.toLowerCase().includes(wanted),
  );
  return h('div.screen', [
    h(Title, { text: 'Settings' }),
    h(HostParts),
    h(Field, {
      label: 'Filter',
      type: 'search',
      value: words,
      help: 'Part of a name, value or origin, such as delivery, default or POSTERN_',
      onValue: setWords,
    }),
    h(LoadingOfHost, { of: loaded, rows: 8 }),
    found &&
      (found.length === 0
        ? h(Notice, { title: 'No settings match' })
        : [
            h('p.faint', { role: 'status' }, count(found.length, 'setting')),
            h('ul.rows.columns.settings', found.map(settingRow)),
          ]),
  ]);
}

function settingRow({ path, value, origin }: HostSetting) {
  return h('li', { key: path }, [
    h('code.name', path),
    h('span.value', { dir: 'auto' }, plain(textOf(value))),
    h('span', { class: origin === 'default' ? 'faint' : 'origin' }, plain(origin)),
  ]);
}

function textOf(value: unknown): string {
  if (value === undefined || value === null || value === '') return 'not set';
  return typeof value === 'string' ? value : JSON.stringify(value);
}
