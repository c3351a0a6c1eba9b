import { execFileSync } from 'node:child_process';
import { expect } from 'chai';
import { curlOf, type SentPost } from '../../../src/console/web/curl.ts';

/** The arguments that a shell passes to curl for the line. */
function argumentsOf(post: SentPost): string[] {
  const out = execFileSync('/bin/sh', ['-c', `curl() { printf '%s\\0' "$@"; }\n${curlOf(post)}`], { encoding: 'utf8' });
  return out.split('\0').slice(0, -1);
}

const FORM = { name: 'content-type', value: 'application/x-www-form-urlencoded' };
const HOOK = 'https://app.example.com/hooks';

describe('an attempt as a curl command', () => {
  it('has the header and the body of the POST', () => {
    const payload = { event: 'inbound', msg: { subject: `It's late & "$HOME" \`id\` \\ é\n` } };
    const [url, , header, , , name, value] = argumentsOf({
      url: HOOK,
      headers: [FORM, { name: 'webhook-id', value: 'msg_1' }],
      payload,
    });
    expect(url).to.equal(HOOK);
    expect(header).to.equal('content-type: application/x-www-form-urlencoded');
    expect(name).to.equal('--data-urlencode');
    expect(value?.slice(0, 16)).to.equal('mandrill_events=');
    expect(JSON.parse(value?.slice(16) ?? '')).to.deep.equal([payload]);
  });

  it('omits signatures, passwords and the query of the URL', () => {
    const line = curlOf({
      url: 'https://user:swordfish@app.example.com/hooks?token=sesame#x',
      headers: [
        FORM,
        { name: 'host', value: 'app.example.com' },
        { name: 'content-length', value: '12' },
        { name: 'authorization', value: 'Basic …' },
        { name: 'webhook-signature', value: 'v1,01234567…' },
        { name: 'X-Mandrill-Signature', value: '01234567…' },
      ],
      payload: undefined,
    });
    expect(line).to.equal(
      `curl 'https://app.example.com/hooks?QUERY' \\\n  -H 'content-type: application/x-www-form-urlencoded' \\\n  --data-binary @body`,
    );
  });

  it('has no terminal control characters', () => {
    const hostile = '\u001b[201~rm\r\n\u009b2J\u202e\u0007';
    const line = curlOf({
      url: HOOK,
      headers: [FORM, { name: 'x-name', value: hostile }],
      payload: { subject: hostile },
    });
    expect(line.replaceAll(' \\\n  ', ' ')).to.match(/^[\x20-\x7e]*$/);
  });

  it('posts JSON as JSON, and names a file for a body that is too long or not text', () => {
    const json = { name: 'content-type', value: 'application/json' };
    const bodyOf = (name: { name: string; value: string }, payload: unknown) =>
      argumentsOf({ url: HOOK, headers: [name], payload }).slice(-2);
    expect(bodyOf(json, { a: 1 })).to.deep.equal(['--data-binary', '{"a":1}']);
    expect(bodyOf(FORM, { content_type: FORM.value, body: 'a=1&b=%27' })).to.deep.equal(['--data-binary', 'a=1&b=%27']);
    expect(bodyOf(FORM, { content_type: 'multipart/form-data', body: '--b\r\n' })).to.deep.equal([
      '--data-binary',
      '@body',
    ]);
    expect(bodyOf(json, { text: 'a'.repeat(200_000) })).to.deep.equal(['--data-binary', '@body']);
  });
});
