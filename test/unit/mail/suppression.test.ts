import { expect } from 'chai';
import { canonicalAddress, canonicalPrefix } from '../../../src/mail/addresses/address.ts';
import {
  activeEntry,
  isExpired,
  type Listing,
  newListing,
  renewedEntry,
  type SuppressionCause,
} from '../../../src/mail/suppression.ts';

const AT = new Date('2026-01-05T12:00:00Z');
const DAY_MS = 86_400_000;
const later = (days: number) => new Date(AT.getTime() + days * DAY_MS);
const cause = (reason: SuppressionCause['reason'], fields: Partial<SuppressionCause> = {}): SuppressionCause => ({
  reason,
  detail: null,
  sender: null,
  at: AT,
  ...fields,
});
const again = (listing: Listing, next: SuppressionCause): Listing => {
  const after = renewedEntry(listing, next);
  if (!after) throw new Error('the entry was kept');
  return after;
};

describe('an entry of the rejection list', () => {
  it('expires by its reason: 1 day, 7 days, 1 year, never', () => {
    const days = (reason: SuppressionCause['reason']) => {
      const end = newListing(cause(reason)).expiresAt;
      return end && (end.getTime() - AT.getTime()) / DAY_MS;
    };
    expect([days('soft-bounce'), days('hard-bounce'), days('spam'), days('unsub'), days('custom')]).to.deep.equal([
      1,
      7,
      365,
      365,
      null,
    ]);
  });

  it('expires exactly at expires_at', () => {
    const listing = newListing(cause('soft-bounce'));
    expect(isExpired(listing, new Date(later(1).getTime() - 1))).to.equal(false);
    expect(isExpired(listing, later(1))).to.equal(true);
    expect(isExpired(newListing(cause('custom')), later(100_000))).to.equal(false);
  });

  it('is extended for 2 days by the second soft bounce, counted from that event, expired or not', () => {
    for (const days of [0.5, 4]) {
      const listing = again(
        newListing(cause('soft-bounce')),
        cause('soft-bounce', { at: later(days), detail: 'smtp;550 full' }),
      );
      expect(listing).to.deep.include({
        createdAt: AT,
        lastEventAt: later(days),
        expiresAt: later(days + 2),
        expired: false,
        detail: 'smtp;550 full',
      });
    }
  });

  it('doubles its duration with every event, up to one year', () => {
    let listing = newListing(cause('soft-bounce'));
    const terms = Array.from({ length: 11 }, (_, i) => {
      listing = again(listing, cause('soft-bounce', { at: later(1000 * (i + 1)) }));
      return ((listing.expiresAt?.getTime() ?? 0) - later(1000 * (i + 1)).getTime()) / DAY_MS;
    });
    expect(terms).to.deep.equal([2, 4, 8, 16, 32, 64, 128, 256, 365, 365, 365]);
  });

  it('has at least the duration of the reason that extends it', () => {
    const hard = again(newListing(cause('soft-bounce')), cause('hard-bounce', { at: later(0.5) }));
    expect(hard).to.deep.include({ reason: 'hard-bounce', expiresAt: later(7.5) });
    expect(again(hard, cause('spam', { at: later(1) }))).to.deep.include({ reason: 'spam', expiresAt: later(366) });
  });

  it('keeps a graver reason while it is valid, and gets a lighter one once it has expired', () => {
    const spam = newListing(cause('spam', { detail: 'complaint', sender: 'news@example.com' }));
    expect(
      again(spam, cause('soft-bounce', { at: later(1), detail: 'full', sender: 'b@example.com' })),
    ).to.deep.include({ reason: 'spam', detail: 'complaint', sender: 'news@example.com', expiresAt: later(366) });
    expect(
      again(spam, cause('soft-bounce', { at: later(400), detail: 'full', sender: 'b@example.com' })),
    ).to.deep.include({ reason: 'soft-bounce', detail: 'full', sender: 'b@example.com' });
  });

  it('is never shortened, even by a late event', () => {
    const listing = again(newListing(cause('soft-bounce', { at: later(3) })), cause('soft-bounce', { at: AT }));
    expect(listing).to.deep.include({ lastEventAt: later(3), expiresAt: later(5) });
  });

  it('is extended once by a repeated event, even with another in between', () => {
    const first = newListing(cause('soft-bounce', { eventId: 'one' }));
    expect(renewedEntry(first, cause('soft-bounce', { eventId: 'one' }))).to.equal(undefined);
    const second = again(first, cause('soft-bounce', { eventId: 'two' }));
    expect(renewedEntry(second, cause('soft-bounce', { eventId: 'one' }))).to.equal(undefined);
    expect(renewedEntry(second, cause('soft-bounce', { eventId: 'two' }))).to.equal(undefined);
  });

  it('keeps only the latest events, so that its size is limited', () => {
    let listing = newListing(cause('soft-bounce', { eventId: '0' }));
    for (let i = 1; i < 100; i++) listing = again(listing, cause('soft-bounce', { eventId: String(i) }));
    expect(listing.eventIds).to.have.length(20).and.include('99').and.not.include('0');
  });

  it('added by hand is not replaced by an event', () => {
    const byHand = newListing(cause('custom', { detail: 'asked us to' }));
    for (const reason of ['soft-bounce', 'hard-bounce', 'spam', 'unsub'] as const)
      expect(renewedEntry(byHand, cause(reason, { at: later(1) }))).to.equal(undefined);
  });

  it('made by an event is replaced by hand, and then never expires', () => {
    const listing = again(
      newListing(cause('soft-bounce', { sender: 'news@example.com' })),
      cause('custom', { at: later(3), detail: 'asked us to' }),
    );
    expect(listing).to.deep.include({
      reason: 'custom',
      detail: 'asked us to',
      sender: null,
      createdAt: later(3),
      lastEventAt: later(3),
      expiresAt: null,
      expired: false,
    });
  });

  it('added by hand gets a new comment, and stays without one', () => {
    const byHand = newListing(cause('custom', { detail: 'one' }));
    expect(renewedEntry(byHand, cause('custom', { at: later(1) }))).to.equal(undefined);
    expect(renewedEntry(byHand, cause('custom', { at: later(1), detail: 'one' }))).to.equal(undefined);
    expect(renewedEntry(byHand, cause('custom', { at: later(1), detail: 'two' }))).to.deep.include({
      detail: 'two',
      createdAt: AT,
    });
  });
});

describe('suppression', () => {
  const soft = newListing(cause('soft-bounce'));
  const hard = newListing(cause('hard-bounce'));

  it('follows from any entry that has not expired', () => {
    expect(activeEntry([], false, AT)).to.equal(undefined);
    expect(activeEntry([soft, hard], false, AT)).to.equal(soft);
    expect(activeEntry([soft, hard], false, later(2))).to.equal(hard);
    expect(activeEntry([soft, hard], false, later(8))).to.equal(undefined);
    expect(activeEntry([{ ...hard, expired: true }], false, AT)).to.equal(undefined);
  });

  it('is overridden by the whitelist', () => {
    expect(activeEntry([soft, newListing(cause('custom'))], true, AT)).to.equal(undefined);
  });
});

describe('an address of the lists', () => {
  it('is compared in lower case, with the domain as A-labels and without unnecessary quotes', () => {
    const cases: readonly [string, string | undefined][] = [
      ['Ann@Example.COM', 'ann@example.com'],
      [' ann@example.com\r\n', 'ann@example.com'],
      ['ann@bücher.example', 'ann@xn--bcher-kva.example'],
      ['ANN@BÜCHER.example', 'ann@xn--bcher-kva.example'],
      ['"ann"@example.com', 'ann@example.com'],
      ['"a b"@example.com', '"a b"@example.com'],
      ['"A\\"b"@example.com', '"a\\"b"@example.com'],
      ['"a@b"@example.com', '"a@b"@example.com'],
      ['jörg@example.com', 'jörg@example.com'],
      ['JO\u0308RG@example.com', 'jörg@example.com'],
      ['📮@example.com', '📮@example.com'],
      ['ann@[192.0.2.1]', 'ann@[192.0.2.1]'],
      ['a+b@example.com', 'a+b@example.com'],
      ["o'hara@example.com", "o'hara@example.com"],
      ['"a..b"@example.com', '"a..b"@example.com'],
      ['nobody', undefined],
      ['', undefined],
      ['a@b@', undefined],
      ['a@example.com\r\nBcc: b@example.com', undefined],
      ['a b@example.com', undefined],
      ['\u202ea@example.com', undefined],
    ];
    for (const [text, listed] of cases) {
      expect(canonicalAddress(text), text).to.equal(listed);
      if (listed !== undefined) expect(canonicalAddress(listed), `${text} again`).to.equal(listed);
    }
  });

  it('is searched by prefix in the same form', () => {
    expect(canonicalPrefix(' ANN')).to.equal('ann');
    expect(canonicalPrefix('Ann@Exa')).to.equal('ann@exa');
    expect(canonicalPrefix('Ann@Bücher.example')).to.equal('ann@xn--bcher-kva.example');
    expect(canonicalPrefix('%_*')).to.equal('%_*');
  });
});
