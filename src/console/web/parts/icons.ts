import { h } from '../h.ts';

// Icons of 16 by 16, drawn with lines in the colour of the text. They repeat what a word beside them says.

const PATHS = {
  check: 'M3 8.5 6.5 12 13 4.5',
  cross: 'M4 4l8 8M12 4l-8 8',
  clock: 'M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12M8 4.5V8l2.5 1.5',
  refused: 'M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12M3.8 3.8l8.4 8.4',
  question: 'M6 6.2c0-2.9 4.2-2.7 4.2 0 0 1.6-2.2 1.8-2.2 3.5M8 12.4v.2',
  pause: 'M5.5 3.5v9M10.5 3.5v9',
  alert: 'M8 2.2 14.4 13H1.6zM8 6.4v3M8 11.2v.2',
  pulse: 'M1.5 8.5h3l2-5 3 9 2-4h3',
  inbox: 'M2 9.5 4 3.5h8l2 6v3.5H2zM2 9.5h3.5l1 1.8h3l1-1.8H14',
  endpoint: 'M2.5 8h8M7.5 4.5 11 8l-3.5 3.5M13.5 3v10',
  domain: 'M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12M2.4 8h11.2M8 2.2c3.8 3.6 3.8 8 0 11.6M8 2.2c-3.8 3.6-3.8 8 0 11.6',
  list: 'M2.5 4h.1M2.5 8h.1M2.5 12h.1M5.5 4h8M5.5 8h8M5.5 12h8',
  outbox: 'M2 9.5 4 6.5M14 9.5 12 6.5M2 9.5v4h12v-4h-3.5l-1 1.8h-3l-1-1.8zM8 8.5v-7M5.5 4 8 1.5 10.5 4',
  key: 'M5 13a3 3 0 1 0 0-6 3 3 0 0 0 0 6M7.2 7.8 13 2M10.5 4.5l2 2',
  done: 'M2.5 4 4 5.5 6.5 2.5M2.5 11 4 12.5l2.5-3M9 4.5h5M9 11.5h5',
  host: 'M2.5 2.5h11v4.5h-11zM2.5 9h11v4.5h-11zM5 4.8h.1M5 11.2h.1',
  queue: 'M2.5 3.5h11M2.5 6.5h11M2.5 9.5h7M2.5 12.5h4',
  more: 'M3 7.9h1M7.5 7.9h1M12 7.9h1',
  given: 'M3 5.5h10v8H3zM2 2.5h12v3H2zM6.5 8.5h3',
  search: 'M7 11.5a4.5 4.5 0 1 0 0-9 4.5 4.5 0 0 0 0 9M10.5 10.5 14 14',
  back: 'M10 3 5 8l5 5',
  right: 'M6 3l5 5-5 5',
  replay: 'M13 8a5 5 0 1 1-1.5-3.6M13 2v3h-3',
  dot: 'M8 8.01V8',
  person: 'M8 8a2.7 2.7 0 1 0 0-5.4A2.7 2.7 0 0 0 8 8M2.8 13.8c.6-2.4 2.6-3.6 5.2-3.6s4.6 1.2 5.2 3.6',
  people:
    'M6 8a2.3 2.3 0 1 0 0-4.6A2.3 2.3 0 0 0 6 8M1.5 13.2c.5-2.1 2.2-3.1 4.5-3.1s4 1 4.5 3.1M10.5 3.6a2.3 2.3 0 0 1 0 4.2M12 10.3c1.4.4 2.3 1.4 2.6 2.9',
  close: 'M4.5 4.5l7 7M11.5 4.5l-7 7',
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { readonly name: IconName }) {
  return h('svg.icon', { viewBox: '0 0 16 16', width: 16, height: 16, 'aria-hidden': 'true' }, [
    h('path', { d: PATHS[name] }),
  ]);
}
