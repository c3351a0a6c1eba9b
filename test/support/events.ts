import type { Received } from './receiver.ts';

/** The events in a post. */
export function eventsOf(request: Received): any[] {
  return JSON.parse(new URLSearchParams(request.body.toString()).get('mandrill_events') ?? 'null');
}

/** Posts that carry events: not the question whether a URL exists. */
export function postsOf(requests: readonly Received[]): Received[] {
  return requests.filter(
    ({ method, body }) => method === 'POST' && !body.toString().startsWith('mandrill_events=%5B%5D'),
  );
}
