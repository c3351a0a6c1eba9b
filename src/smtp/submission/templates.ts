import { inSlices } from '../../base/steps.ts';
import { fillingRegions } from '../../mail/regions.ts';
import { slugOf } from '../../mail/template.ts';
import { TooLong } from '../../mail/too-long.ts';
import type { Store } from '../../store/store.ts';

/** A template with content in it; merge tags are replaced later, for each recipient. */
export interface Filled {
  readonly slug: string;
  readonly html: string;
  readonly text: string | null;
  readonly subject: string | null;
}

/** unknown: the account has no such template, or never published it · too-long: with this content it would be. */
export type Filling =
  | { readonly filled: Filled }
  | { readonly filled?: undefined; readonly why: 'unknown' | 'too-long' };

/** Puts the HTML into the block of a template, as it was published. */
export async function fillTemplate(
  store: Pick<Store, 'templates'>,
  account: string,
  { name, block }: { readonly name: string; readonly block: string },
  html: string,
): Promise<Filling> {
  const slug = slugOf(name);
  const row = await store.templates.one({ account, slug });
  if (!row?.published || (row.name !== name && row.slug !== name)) return { why: 'unknown' };
  const { code, text, subject } = row.published;
  try {
    return {
      filled: { slug, html: await inSlices(fillingRegions(code ?? '', new Map([[block, html]]))), text, subject },
    };
  } catch (error) {
    if (error instanceof TooLong) return { why: 'too-long' };
    throw error;
  }
}
