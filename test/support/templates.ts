import { counterId } from '../../src/store/rows/counters.ts';
import { templateLabelId } from '../../src/store/rows/templates.ts';
import type { Store } from '../../src/store/store.ts';

/** The template of the examples, published, with a label and one hour of numbers. */
export async function seedTemplates(store: Store, account: string): Promise<void> {
  const at = new Date('2026-01-05T11:00:00Z');
  const content = {
    code: '<p mc:edit="editable">editable content</p>',
    subject: 'example subject',
    fromEmail: 'news@example.com',
    fromName: 'Example Name',
    text: 'Example text',
  };
  await store.templates.insert({
    id: 'ExampleTemplateId00001',
    account,
    name: 'Example Template',
    slug: 'example-template',
    labels: ['example-label'],
    draft: content,
    published: content,
    publishedAt: at,
    createdAt: at,
    updatedAt: at,
    version: 1,
  });
  await store.templateLabels.insert({
    id: templateLabelId('ExampleTemplateId00001', 'example-label'),
    account,
    label: 'example-label',
    template: 'ExampleTemplateId00001',
    name: 'Example Template',
  });
  const start = new Date('2026-01-05T09:00:00Z');
  const counts = {
    sent: 40,
    hardBounces: 0,
    softBounces: 0,
    rejects: 0,
    complaints: 0,
    unsubs: 0,
    opens: 12,
    uniqueOpens: 10,
    clicks: 3,
    uniqueClicks: 3,
  };
  await store.counters.add(
    counterId(account, 'template', 'hour', start, 'example-template'),
    {},
    { account, kind: 'template', span: 'hour', key: 'example-template', start, firstAt: start, ...counts },
  );
}
