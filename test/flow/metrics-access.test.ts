import { expect } from 'chai';
import { startDaemon } from '../support/daemon.ts';

/** Asks for /metrics of a daemon with these settings, once with each set of headers; answers the statuses. */
async function statusesOf(
  env: Readonly<Record<string, string>>,
  ...headers: readonly Record<string, string>[]
): Promise<number[]> {
  const postern = await startDaemon(env);
  try {
    return await Promise.all(
      headers.map(async (one) => {
        const response = await fetch(`${postern.base}/metrics`, { headers: one });
        const text = await response.text();
        if (response.status !== 200) expect(text).not.to.contain('postern_');
        return response.status;
      }),
    );
  } finally {
    await postern.stop();
  }
}

describe('/metrics', function () {
  this.timeout(30_000);

  it('is for the host itself by default', async () => {
    expect(await statusesOf({}, {})).to.deep.equal([200]);
    expect(await statusesOf({ POSTERN_METRICS__ALLOW: '10.0.0.0/8' }, {})).to.deep.equal([403]);
    expect(await statusesOf({ POSTERN_METRICS__ALLOW: '' }, {})).to.deep.equal([403]);
  });

  it('is closed to a proxy on the host that is not in the settings', async () => {
    const forwarded = [
      { 'X-Forwarded-For': '203.0.113.9' },
      { 'X-Forwarded-For': '127.0.0.1' },
      { Forwarded: 'for=203.0.113.9' },
    ];
    expect(await statusesOf({}, ...forwarded)).to.deep.equal([403, 403, 403]);
  });

  it('checks the client behind a trusted proxy', async () => {
    const env = { POSTERN_HTTP__TRUSTED_PROXIES: '127.0.0.1', POSTERN_METRICS__ALLOW: '192.0.2.7' };
    const headers = [
      { 'X-Forwarded-For': '192.0.2.7' },
      { 'X-Forwarded-For': '192.0.2.8' },
      { 'X-Forwarded-For': '192.0.2.7, 192.0.2.8' },
      {},
    ];
    expect(await statusesOf(env, ...headers)).to.deep.equal([200, 403, 403, 403]);
  });

  it('is in the format that Prometheus reads', async () => {
    const postern = await startDaemon();
    const { headers } = await fetch(`${postern.base}/metrics`);
    expect(headers.get('content-type')).to.equal('text/plain; version=0.0.4; charset=utf-8');
    await postern.stop();
  });
});
