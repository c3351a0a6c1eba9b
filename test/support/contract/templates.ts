import { hour, template } from './records.ts';
import type { Stage } from './stage.ts';
import { boolean, type Group, pages, required, string, strings, structs } from './types.ts';

const labels = strings('labels', { maxItems: 10 }, { each: [{ maxlength: 100 }] });
const content = [
  string('from_email', { format: 'email' }),
  string('from_name'),
  string('subject'),
  string('code'),
  string('text'),
  boolean('publish'),
  labels,
];

const CODE = '<h1 mc:edit="head">Hello</h1><p>*|WHO|*</p>';

async function made(stage: Stage): Promise<{ name: string }> {
  const name = `Letter ${stage.fresh()}`;
  await stage.ok('/templates/add', {
    name,
    code: CODE,
    subject: 'Hi',
    from_email: 'ann@example.com',
    from_name: 'Ann',
    text: 'Hello',
    labels: ['news'],
  });
  return { name };
}

const unknown = (stage: Stage) => ({ name: `none ${stage.fresh()}` });

export const templates: Group = {
  name: 'templates',
  entries: [
    {
      path: '/templates/add',
      params: [required(string('name')), ...content],
      returns: template,
      names: ['name'],
      given: (stage) => ({ name: `Letter ${stage.fresh()}` }),
      errors: { Invalid_Template: made },
    },
    {
      path: '/templates/info',
      params: [required(string('name'))],
      returns: template,
      given: made,
      errors: { Unknown_Template: unknown },
      names: ['name'],
    },
    {
      path: '/templates/update',
      params: [required(string('name')), ...content],
      returns: template,
      given: made,
      errors: { Unknown_Template: unknown },
      names: ['name'],
    },
    {
      path: '/templates/publish',
      params: [required(string('name'))],
      returns: template,
      given: made,
      errors: { Unknown_Template: unknown },
      names: ['name'],
    },
    {
      path: '/templates/delete',
      params: [required(string('name'))],
      returns: template,
      given: made,
      errors: { Unknown_Template: unknown },
      names: ['name'],
    },
    {
      path: '/templates/list',
      params: [string('label')],
      beyondParams: pages,
      returns: { array: template },
      errors: {},
      given: async (stage) => {
        await made(stage);
        return {};
      },
    },
    {
      path: '/templates/time-series',
      params: [required(string('name'))],
      returns: { array: hour },
      errors: { Unknown_Template: unknown },
      names: ['name'],
      async given(stage) {
        const { name } = await made(stage);
        await stage.sent({ template: (await stage.ok('/templates/info', { name })).slug });
        return { name };
      },
    },
    {
      path: '/templates/render',
      params: [required(string('template_name')), required(structs('template_content')), structs('merge_vars')],
      returns: { struct: { html: 'string' } },
      given: async (stage) => ({
        template_name: (await made(stage)).name,
        template_content: [{ name: 'head', content: 'Dear *|WHO|*' }],
      }),
      errors: { Unknown_Template: (stage) => ({ template_name: `none ${stage.fresh()}`, template_content: [] }) },
      names: ['template_name'],
    },
  ],
};
