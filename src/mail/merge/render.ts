import { inSlices, type Steps } from '../../base/steps.ts';
import { type Contents, fillingRegions } from '../regions.ts';
import { MAX_RENDERED, TooLong } from '../too-long.ts';
import type { Vars } from './condition.ts';
import { merging } from './merge.ts';

export interface RenderInput {
  readonly code: string;
  readonly contents: Contents;
  /** Undefined: no tag is touched. */
  readonly vars: Vars | undefined;
  readonly now: Date;
  readonly maxLength?: number;
}

/** The HTML, or which of the inputs made it longer than it may be. */
export type Rendered = { readonly html: string } | { readonly tooLong: 'contents' | 'vars' };

/**
 * Fills the regions of a template, then replaces its merge tags, those in the contents too. It rests every millisecond or so: a
 * template of megabytes must not hold up the mail that comes in meanwhile.
 */
export async function render({ code, contents, vars, now, maxLength = MAX_RENDERED }: RenderInput): Promise<Rendered> {
  const filled = await unlessTooLong(fillingRegions(code, contents, maxLength));
  if (filled === undefined) return { tooLong: 'contents' };
  if (!vars) return { html: filled };
  const html = await unlessTooLong(merging(filled, vars, { now, maxLength }));
  return html === undefined ? { tooLong: 'vars' } : { html };
}

/** Undefined when it became too long. */
async function unlessTooLong(steps: Steps<string>): Promise<string | undefined> {
  try {
    return await inSlices(steps);
  } catch (error) {
    if (error instanceof TooLong) return undefined;
    throw error;
  }
}
