import { formatDate } from '../dates.ts';
import { filtered } from '../tag.ts';
import { type Maybe, member, toText } from '../value.ts';

/** What a helper may know beside its values. */
export interface Surroundings {
  readonly now: Date;
  /** The link that ends a subscription, leading on to the URL when one is said; only a real sending knows it. */
  readonly onUnsub?: ((url: string) => string) | undefined;
}

/** A function that a template may call. */
export interface Helper {
  readonly fewest: number;
  readonly most: number;
  run(values: readonly Maybe[], surroundings: Surroundings): Maybe;
}

/** What `date` writes when no format is said (documented). */
const USUAL_DATE = 'd/m/Y';

const ofText = (change: (text: string) => string): Helper => ({
  fewest: 0,
  most: 1,
  run: ([value]) => change(toText(value)),
});

/** All there are. */
export const HELPERS: ReadonlyMap<string, Helper> = new Map<string, Helper>([
  ['upper', ofText((text) => filtered(text, 'upper'))],
  ['lower', ofText((text) => filtered(text, 'lower'))],
  ['title', ofText((text) => filtered(text, 'title'))],
  ['url', ofText((text) => filtered(text, 'url'))],
  ['striptags', ofText(stripTags)],
  [
    'date',
    {
      fewest: 0,
      most: 1,
      run: ([format], { now }) => formatDate(now, format === undefined ? USUAL_DATE : toText(format)),
    },
  ],
  ['unsub', { fewest: 0, most: 1, run: ([url], { onUnsub }) => onUnsub?.(toText(url)) }],
  ['lookup', { fewest: 2, most: 2, run: ([value, name]) => member(value, toText(name)) }],
]);

/** Takes out what stands between < and >. In one pass: what is not closed is text. */
function stripTags(text: string): string {
  const parts: string[] = [];
  let done = 0;
  for (;;) {
    const open = text.indexOf('<', done);
    const close = open < 0 ? -1 : text.indexOf('>', open);
    if (close < 0) return parts.join('') + text.slice(done);
    parts.push(text.slice(done, open));
    done = close + 1;
  }
}
