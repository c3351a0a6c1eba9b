import { z } from 'zod';
import { render } from '../../mail/merge/render.ts';
import { MAX_RENDERED } from '../../mail/too-long.ts';
import type { Submitted } from '../../outbound/types.ts';
import { type Call, operation } from '../operation.ts';
import { checkTemplates, type FilledTemplate, toDraft, toOutgoing } from './messages-draft.ts';
import { MAX_RECIPIENTS, type MessageParam, messageParam, sendingParams, sentRecord } from './messages-fields.ts';
import { givenName } from './template-records.ts';
import { findTemplate } from './template-rows.ts';

type Sent = z.input<typeof sentRecord>;
type SendErrors = 'Unknown_Subaccount' | 'ServiceUnavailable';

const NOTES =
  `Every recipient gets a message of its own, with an id of its own; up to ${MAX_RECIPIENTS}. The answer comes when the message is safe on disk. ` +
  'Recipients on the rejection list are `rejected`, what is no address is `invalid`; all others are `queued`, or `scheduled` with a `send_at` to come. ' +
  'Merge tags are replaced when `merge` is true or variables are given: *|NAME|*, or {{name}} with merge_language handlebars, whose variables may be lists and structs. ' +
  'What is no template of that language is a ValidationError; one that grows too large or costs too much is found when it is composed, and its recipient is rejected as `invalid`. ' +
  'bcc_address gets one copy. A tracking_domain, return_path_domain or signing_domain that cannot be used is passed over: the message goes out with ours.';

/** What became of a submission, as a record, or the refusal of it. */
export async function submitted(
  submission: Parameters<Call<SendErrors>['messages']['submit']>[0],
  call: Call<SendErrors>,
): Promise<readonly Submitted[]> {
  const outcome = await call.messages.submit(submission);
  if (outcome.outcome === 'accepted') return outcome.recipients;
  if (outcome.outcome === 'unknown-subaccount')
    throw call.refuse('Unknown_Subaccount', submission.outgoing.subaccount ?? '');
  throw call.refuse('ServiceUnavailable');
}

/** One recipient of a submission as the API shows it. */
export function toSentRecord({ email, status, rejectReason, queuedReason, id }: Submitted): Sent {
  return { email, status, reject_reason: rejectReason, queued_reason: queuedReason, _id: id };
}

interface Asked {
  readonly message: MessageParam;
  readonly template: FilledTemplate | null;
  readonly pool: string | undefined;
  readonly sendAt: Date | undefined;
}

async function sendDraft(
  { message, template, pool, sendAt = undefined }: Asked,
  call: Call<SendErrors>,
): Promise<Sent[]> {
  const outgoing = toOutgoing(message, { pool, template }, call);
  const draft = toDraft(message, template);
  await checkTemplates(outgoing, draft, call);
  const bytes = Buffer.from(JSON.stringify(draft));
  if (bytes.length > call.settings.maxMessageBytes)
    throw call.invalid('message', `The message is larger than ${call.settings.maxMessageBytes} bytes`);
  const recipients = draft.to.map(({ email }) => email);
  const sent = await submitted({ outgoing, bytes, recipients, sendAt: sendAt ?? null, client: null }, call);
  // Recipients that were named twice are answered once; the copy that nobody is to know of is not answered.
  const named = new Set(message.to.map(({ email }) => email.trim()));
  return sent.filter(({ email }) => named.has(email)).map(toSentRecord);
}

const MESSAGE = {
  html: '<p>Example HTML content</p>',
  text: 'Example text content',
  subject: 'example subject',
  from_email: 'news@example.com',
  from_name: 'Example Name',
  to: [{ email: 'recipient.email@example.com', name: 'Recipient Name', type: 'to' }, { email: 'gone@example.com' }],
  headers: { 'Reply-To': 'replies@example.com' },
  track_opens: true,
  tags: ['password-resets'],
  metadata: { website: 'www.example.com' },
};

const send = operation({
  path: '/messages/send',
  summary: 'Sends a message.',
  notes: NOTES,
  large: true,
  params: { message: messageParam, ...sendingParams },
  returns: z.array(sentRecord),
  errors: ['Unknown_Subaccount', 'ServiceUnavailable'],
  example: {
    params: { message: MESSAGE },
    answer: [
      {
        email: 'recipient.email@example.com',
        status: 'queued',
        reject_reason: null,
        queued_reason: 'sending-backlog',
        _id: '6f70a52ec2d1bcd8ad31231790f51a0e',
      },
      {
        email: 'gone@example.com',
        status: 'rejected',
        reject_reason: 'hard-bounce',
        queued_reason: null,
        _id: 'a56e631363ed591797dbb1461d73f13e',
      },
    ],
  },
  handle: ({ message, ip_pool: pool, send_at: sendAt }, call) =>
    sendDraft({ message, template: null, pool, sendAt }, call),
});

const contents = z.array(z.object({ name: z.string(), content: z.string() }));

const sendTemplate = operation({
  path: '/messages/send-template',
  summary: 'Sends a message made of a template.',
  notes:
    'The published content of the template is used. template_content goes into the elements marked by mc:edit; fields of the message win over those of the template, but for its HTML. ' +
    `Merge tags are replaced for each recipient afterwards, in the contents too. ${NOTES}`,
  large: true,
  params: {
    template_name: givenName,
    template_content: contents.meta({ description: 'name of each region and the content to put there' }),
    message: messageParam,
    ...sendingParams,
  },
  returns: z.array(sentRecord),
  errors: ['Unknown_Template', 'Invalid_Template', 'Unknown_Subaccount', 'ServiceUnavailable'],
  example: {
    params: {
      template_name: 'Example Template',
      template_content: [{ name: 'editable', content: 'Hello *|NAME|*' }],
      message: {
        to: [{ email: 'recipient.email@example.com' }],
        global_merge_vars: [{ name: 'name', content: 'you' }],
      },
    },
    answer: [
      {
        email: 'recipient.email@example.com',
        status: 'queued',
        reject_reason: null,
        queued_reason: 'sending-backlog',
        _id: '6f70a52ec2d1bcd8ad31231790f51a0e',
      },
    ],
  },
  async handle({ template_name: name, template_content: regions, message, ip_pool: pool, send_at: sendAt }, call) {
    const { slug, published } = await findTemplate(name, call);
    if (!published) throw call.refuse('Invalid_Template', `The template "${name}" has never been published`);
    const filled = await render({
      code: published.code ?? '',
      contents: new Map(regions.map((region) => [region.name, region.content])),
      vars: undefined,
      now: call.now(),
    });
    if (!('html' in filled))
      throw call.invalid(
        'template_content',
        `The template with its content would be longer than ${MAX_RENDERED} characters`,
      );
    return sendDraft({ message, template: { slug, content: { ...published, code: filled.html } }, pool, sendAt }, call);
  },
});

/** Sending what is written in parts. */
export const messagesSend = [send, sendTemplate];
