import { tag, tagDetail, tagHour, tagHourOfAll } from './records.ts';
import type { Stage } from './stage.ts';
import { type Group, pages, required, string } from './types.ts';

const name = required(string('tag'));

async function used(stage: Stage): Promise<{ tag: string }> {
  const one = `offer-${stage.fresh()}`;
  await stage.sent({ tag: one }, ['send', 'open', 'open']);
  return { tag: one };
}

const unknown = (stage: Stage) => ({ tag: `none-${stage.fresh()}` });

export const tags: Group = {
  name: 'tags',
  entries: [
    {
      path: '/tags/list',
      params: [],
      beyondParams: pages,
      returns: { array: tag },
      given: async (stage) => {
        await used(stage);
        return {};
      },
      errors: {},
    },
    {
      path: '/tags/delete',
      params: [name],
      returns: tag,
      given: used,
      errors: { Invalid_Tag_Name: unknown },
      names: ['tag'],
    },
    {
      path: '/tags/info',
      params: [name],
      returns: tagDetail,
      given: used,
      errors: { Invalid_Tag_Name: unknown },
      names: ['tag'],
    },
    {
      path: '/tags/time-series',
      params: [name],
      returns: { array: tagHour },
      given: used,
      errors: { Invalid_Tag_Name: unknown },
      names: ['tag'],
    },
    {
      path: '/tags/all-time-series',
      params: [],
      beyondParams: { after_time: pages.after, after_tag: pages.after },
      returns: { array: tagHourOfAll },
      given: async (stage) => {
        await used(stage);
        return {};
      },
      errors: {},
    },
  ],
};
