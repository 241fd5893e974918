/* board.h - a board with a Cortex-M3 and five UARTs: the lines of uart.h, a clock, noise, and what memory was used.  It is ARM's
 * MPS2 with the AN385 image, as `qemu-system-arm -M mps2-an385` emulates it.
 *
 * UART0 is left to others; line i is UART i + 1.  Every byte that comes is an interrupt, which puts it into a ring; one that is
 * full loses it.  SysTick counts milliseconds. */
#ifndef BOARD_H
#define BOARD_H

#include <unistd.h>

#if !defined(UART_RING)
#define UART_RING 256                             /* a power of two: two frames and their answers             */
#endif

/* ---- >>registers ---- */

enum { BOARD_TX_FULL = 1, BOARD_RX_FULL = 2, BOARD_RX_INTERRUPT = 2, BOARD_ON = 1 + 2 + 8, BOARD_CLOCK = 25000000 };

typedef struct board_uart {
    volatile uint32_t data, state, control, interrupt, divisor;
} board_uart;

static const uintptr_t board_uarts[UART_LINES] = { 0x40005000, 0x40006000, 0x40007000 };
static const uint8_t board_interrupts[UART_LINES] = { 2, 4, 18 };      /* of bytes that come                   */

static board_uart *board_line(int line) { return (board_uart *)board_uarts[line]; }
static volatile uint32_t *board_register(uintptr_t address) { return (volatile uint32_t *)address; }

/* ---- >>bytes and time ---- */

static struct board {
    volatile uint32_t ms;
    volatile uint16_t written[UART_LINES];        /* by the interrupt                                         */
    uint16_t read[UART_LINES];
    uint8_t  ring[UART_LINES][UART_RING];
    uint32_t noise, chance;                       /* of 65536 bytes so many are lost or changed               */
} board;

static void board_tick(void) { board.ms++; }

/* A line that is not good: a byte is lost, or a bit of it changes.  What `chance` is made of: xorshift. */
static bool board_is_lost(uint32_t *byte)
{
    uint32_t x = board.chance;

    if (board.noise == 0) return false;
    x ^= x << 13, x ^= x >> 17, x ^= x << 5;
    board.chance = x;
    if ((x & 0xffff) >= board.noise) return false;
    *byte ^= 1u << (x >> 17 & 7);
    return x >> 16 & 1;
}

static void board_byte(int line)
{
    board_uart *uart = board_line(line);

    while (uart->state & BOARD_RX_FULL) {
        uint32_t byte = uart->data;
        const uint16_t at = board.written[line];
        uart->interrupt = BOARD_RX_INTERRUPT;
        if (board_is_lost(&byte) || (uint16_t)(at - board.read[line]) == UART_RING) continue;
        board.ring[line][at % UART_RING] = (uint8_t)byte;
        board.written[line] = (uint16_t)(at + 1);
    }
    uart->interrupt = BOARD_RX_INTERRUPT;
}

static void board_byte0(void) { board_byte(0); }
static void board_byte1(void) { board_byte(1); }
static void board_byte2(void) { board_byte(2); }
static void board_fault(void) { _exit(3); }

static int uart_get(int line)
{
    const uint16_t at = board.read[line];

    if (at == board.written[line]) return -1;
    const int byte = board.ring[line][at % UART_RING];
    board.read[line] = (uint16_t)(at + 1);
    return byte;
}

static bool uart_put(int line, int byte)
{
    board_uart *uart = board_line(line);

    if (uart->state & BOARD_TX_FULL) return false;
    uart->data = (uint32_t)byte;
    return true;
}

static uint32_t uart_ms(void) { return board.ms; }

/* An interrupt that comes between the look and the sleep ends the sleep, though it is served only behind it. */
static void uart_idle(void)
{
    bool any = false;

    __asm__ volatile("cpsid i" ::: "memory");
    for (int i = 0; i < UART_LINES; i++) any = any || board.read[i] != board.written[i];
    if (!any) __asm__ volatile("wfi" ::: "memory");
    __asm__ volatile("cpsie i" ::: "memory");
}

/* ---- >>the beginning: the C library has set up memory, and calls main ---- */

extern char __stack[];                            /* which grows down                                         */
typedef void board_vector(void);

enum { BOARD_EXCEPTIONS = 16, BOARD_VECTORS = BOARD_EXCEPTIONS + 32 };

static board_vector *const board_vectors[BOARD_VECTORS] __attribute__((aligned(256))) = {
    [2] = board_fault, [3] = board_fault, [4] = board_fault, [5] = board_fault, [6] = board_fault, [15] = board_tick,
    [BOARD_EXCEPTIONS + 2] = board_byte0, [BOARD_EXCEPTIONS + 4] = board_byte1, [BOARD_EXCEPTIONS + 18] = board_byte2
};

enum { BOARD_STACK = 32 << 10 };                  /* so much of it is painted, to see what is used           */

static const uint32_t board_paint = 0x5ca1ab1e;

static uint32_t *board_stack_end(void) { return (uint32_t *)(void *)(__stack - BOARD_STACK); }

static void board_begin(uint32_t noise, uint32_t seed)
{
    board.noise = noise;
    board.chance = seed * 2654435761u + 1;
    for (uint32_t *p = board_stack_end(); p < (uint32_t *)__builtin_frame_address(0) - 16; p++) *p = board_paint;
    *board_register(0xe000ed08) = (uint32_t)(uintptr_t)board_vectors;
    *board_register(0xe000e014) = BOARD_CLOCK / 1000 - 1;
    *board_register(0xe000e018) = 0;
    *board_register(0xe000e010) = 7;
    for (int i = 0; i < UART_LINES; i++) {
        board_line(i)->divisor = BOARD_CLOCK / 115200;
        board_line(i)->control = BOARD_ON;
        *board_register(0xe000e100) = 1u << board_interrupts[i];
    }
    __asm__ volatile("cpsie i" ::: "memory");
}

/* The most that the stack has been since board_begin, in bytes. */
static size_t board_stack(void)
{
    const uint32_t *p = board_stack_end();

    while (*p == board_paint) p++;
    return (size_t)(__stack - (const char *)p);
}

#endif /* BOARD_H */
