import { useEffect, useRef } from 'preact/hooks';
import { call } from '../call.ts';
import { h } from '../h.ts';
import { useCall, useLoad, useRepeat } from '../load.ts';
import { Button, Loading, type Mark, State, Time } from '../parts/elements.ts';
import { Copy } from '../parts/form.ts';
import { shownHost } from '../parts/hosts.ts';
import { count, number, plain } from '../parts/text.ts';
import type { HostCheck, HostExamination, HostListener } from '../records.ts';

// The results of `postern doctor`, and the listeners.

export const LEVELS: Readonly<Record<HostCheck['level'], Mark>> = {
  fault: { icon: 'cross', word: 'Fault', tone: 'bad' },
  warning: { icon: 'alert', word: 'Warning', tone: 'wait' },
  ok: { icon: 'check', word: 'OK', tone: 'good' },
  skipped: { icon: 'question', word: 'Not checked', tone: 'off' },
};

/** What needs somebody stands first; within a level it is the order of the checks. */
const ORDER: readonly HostCheck['level'][] = ['fault', 'warning', 'ok', 'skipped'];

const isProblem = ({ level }: HostCheck) => level === 'fault' || level === 'warning';

/** The examination of the host, check by check as they end. */
export function Checks() {
  const loaded = useExamination();
  const { data: run, again } = loaded;
  const checks = ORDER.flatMap((level) => run?.checks.filter((one) => one.level === level) ?? []);
  const others = checks.filter((one) => !isProblem(one));
  return h('section', { 'aria-labelledby': 'checks' }, [
    h('div.heading', [
      h('h2', { id: 'checks' }, 'Checks'),
      h(Button, { label: 'Refresh', icon: 'replay', disabled: run?.state === 'running', onPress: again }),
    ]),
    h(Loading, { of: loaded, rows: 4 }),
    run && [
      h(Counts, { run }),
      h('ul.rows.columns.checks', checks.filter(isProblem).map(toRow)),
      others.length > 0 &&
        h('details.others', [
          h('summary', count(others.length, 'other check')),
          h('ul.rows.columns.checks', others.map(toRow)),
        ]),
    ],
  ]);
}

const POLL_MS = 700;

/** Starts an examination, or joins the one that runs, and reads on until it is done. */
function useExamination() {
  const id = useRef<string | undefined>(undefined);
  const host = shownHost.value;
  const loaded = useLoad(`host examine ${host}`, (stop) => call('host/examine', { host, id: id.current }, stop));
  const { data, error, again } = loaded;
  useEffect(() => {
    id.current = data?.state === 'running' && !error ? data.id : undefined;
    if (id.current === undefined) return;
    const timer = setTimeout(again, POLL_MS);
    return () => clearTimeout(timer);
  }, [data, error]);
  return loaded;
}

function Counts({ run: { state, counts, ended_at: endedAt } }: { readonly run: HostExamination }) {
  const { ok, warning, fault, skipped } = counts;
  return h('p.counts', [
    h(State, { ...LEVELS.ok, word: `${number(ok)} ok` }),
    h(State, { ...LEVELS.warning, tone: warning > 0 ? 'wait' : 'off', word: count(warning, 'warning') }),
    h(State, { ...LEVELS.fault, tone: fault > 0 ? 'bad' : 'off', word: count(fault, 'fault') }),
    skipped > 0 && h(State, { ...LEVELS.skipped, word: `${number(skipped)} not checked` }),
    h('span.faint', { role: 'status' }, state === 'running' ? 'Checking\u2026' : 'Checked'),
    endedAt !== null && h('span.faint', [h(Time, { at: endedAt })]),
  ]);
}

function toRow(check: HostCheck, i: number) {
  const { name, level, text, advice } = check;
  return h('li', { key: `${name} ${i}`, 'data-row': name }, [
    h(State, LEVELS[level]),
    h('span.name', { dir: 'auto' }, plain(name)),
    h('span.text', { dir: 'auto' }, plain(text)),
    advice !== null && [
      h('span.advice.faint', { dir: 'auto' }, plain(advice)),
      h('span.buttons', [h(Copy, { text: `${name}: ${text}\n${advice}` })]),
    ],
  ]);
}

const NAMES: Readonly<Record<HostListener['name'], string>> = {
  smtp: 'Inbound SMTP',
  submission: 'Submission',
  submissions: 'Submission (TLS)',
  http: 'API and console',
  https: 'API and console (HTTPS)',
};

const TLS: Readonly<Record<HostListener['tls'], string>> = {
  none: 'no TLS',
  starttls: 'STARTTLS',
  implicit: 'implicit TLS',
};

/** Where the host listens. */
export function Listeners() {
  const loaded = useRepeat(useCall('host/listeners', { host: shownHost.value }));
  const { data } = loaded;
  return h('section', { 'aria-labelledby': 'listeners' }, [
    h('h2', { id: 'listeners' }, 'Listeners'),
    h(Loading, { of: loaded, rows: 3 }),
    data &&
      h('ul.rows.columns.listeners', [
        data.listeners.map((listener) => h(ListenerRow, { key: listener.name, listener })),
      ]),
  ]);
}

function ListenerRow({
  listener: { name, tls, addresses, sessions, certificate },
}: {
  readonly listener: HostListener;
}) {
  const shown = addresses.map(({ address, port }) => `${address.includes(':') ? `[${address}]` : address}:${port}`);
  return h('li', { 'data-row': name }, [
    h('span.name', NAMES[name]),
    h('code.addresses', shown.join(', ')),
    h('span', [`${TLS[tls]}, ${count(sessions, name.startsWith('http') ? 'open connection' : 'open session')}`]),
    certificate && h(CertificateLine, { certificate }),
  ]);
}

/** Certificates are renewed a month before they end; with fewer days left, that does not work. */
const SOON_DAYS = 14;

function CertificateLine({
  certificate: { names, issuer, not_after: notAfter, days_left: days },
}: {
  readonly certificate: NonNullable<HostListener['certificate']>;
}) {
  const mark: Mark =
    days < 0
      ? { icon: 'cross', tone: 'bad', word: 'Expired' }
      : days < SOON_DAYS
        ? { icon: 'alert', tone: 'wait', word: `Expires in ${count(days, 'day')}` }
        : { icon: 'check', tone: 'good', word: `${count(days, 'day')} left` };
  return h('span.certificate', [
    h(State, mark),
    h('span', { dir: 'auto' }, [
      `Certificate for ${plain(names.join(', '))}, issued by ${plain(issuer)}, until ${notAfter.slice(0, 10)}`,
    ]),
  ]);
}
