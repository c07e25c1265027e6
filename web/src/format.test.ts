import { describe, expect, it } from 'vitest';
import { age, clipMiddle, plain, shortName, tokens, usd } from './format';

describe('untrusted text (S12)', () => {
  it('shows invisible characters as code points', () => {
    expect(plain('a\u202eb\u200bc\u0007')).toBe('a⟨202E⟩b⟨200B⟩c⟨0007⟩');
    expect(plain('\u{e0041}x')).toBe('⟨E0041⟩x');
    expect(plain('tab\tline\nümläut 漢字 🙂')).toBe('tab\tline\nümläut 漢字 🙂');
  });

  it('is cut', () => {
    const text = plain('x'.repeat(10_000_000));
    expect(text.length).toBeLessThan(2_100);
    expect(text).toContain('9998000 more characters');
  });
});

describe('formats', () => {
  it('durations and token counts are short', () => {
    expect([age(0), age(59_999), age(61_000), age(3_700_000), age(90_000_000)]).toEqual(['0s', '59s', '1m', '1h 1m', '1d']);
    expect([tokens(999), tokens(4_100_000), tokens(212_000)]).toEqual(['999', '4.1 M', '212 k']);
  });

  it('an unknown cost is a dash, not zero', () => {
    expect([usd(undefined), usd(null), usd(0), usd(2_845_000)]).toEqual(['–', '–', '$0.00', '$2.85']);
  });

  it('shortened names keep their end, and shortened sentences keep their numbers', () => {
    expect(shortName('shop/lead-amber-reef/worker-frost', 17)).toBe('…eef/worker-frost');
    expect(shortName('claude-1')).toBe('claude-1');
    const shortened = clipMiddle(`“${'very '.repeat(40)}long” 7 of 12 landed`, 120);
    expect(shortened.length).toBeLessThanOrEqual(121);
    expect(shortened.endsWith('long” 7 of 12 landed')).toBe(true);
    expect(clipMiddle('short', 120)).toBe('short');
  });
});
