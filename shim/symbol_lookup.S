// The dlsym that programs see. glibc takes the caller of dlsym from its return address, for
// RTLD_NEXT and RTLD_DEFAULT; so for every name that is not a hooked driver call, and always for
// RTLD_NEXT, this jumps to the real one with the stack as it was found. Names that begin with
// "cu" and an upper-case letter are first shown to lull_lookup_symbol (symbol_lookup.cc), which
// answers 0 (not ours: jump on), -1 (the answer is null) or the address to hand out.
#if defined(__x86_64__)
        .text
        .globl  dlsym
        .type   dlsym, @function
        .p2align 4
dlsym:
        .cfi_startproc
        endbr64
        cmpq    $-1, %rdi               // RTLD_NEXT
        je      .Lreal
        testq   %rsi, %rsi
        je      .Lreal
        cmpb    $'c', (%rsi)
        jne     .Lreal
        cmpb    $'u', 1(%rsi)
        jne     .Lreal
        movzbl  2(%rsi), %eax
        subl    $'A', %eax
        cmpl    $25, %eax
        ja      .Lreal
        pushq   %rdi
        .cfi_adjust_cfa_offset 8
        pushq   %rsi
        .cfi_adjust_cfa_offset 8
        subq    $8, %rsp
        .cfi_adjust_cfa_offset 8
        call    lull_lookup_symbol
        addq    $8, %rsp
        .cfi_adjust_cfa_offset -8
        popq    %rsi
        .cfi_adjust_cfa_offset -8
        popq    %rdi
        .cfi_adjust_cfa_offset -8
        testq   %rax, %rax
        je      .Lreal
        xorl    %edx, %edx
        cmpq    $-1, %rax
        cmove   %rdx, %rax
        ret
.Lreal:
        pushq   %rdi
        .cfi_adjust_cfa_offset 8
        pushq   %rsi
        .cfi_adjust_cfa_offset 8
        subq    $8, %rsp
        .cfi_adjust_cfa_offset 8
        call    lull_real_dlsym
        addq    $8, %rsp
        .cfi_adjust_cfa_offset -8
        popq    %rsi
        .cfi_adjust_cfa_offset -8
        popq    %rdi
        .cfi_adjust_cfa_offset -8
        jmp     *%rax
        .cfi_endproc
        .size   dlsym, .-dlsym
        .hidden lull_lookup_symbol
        .hidden lull_real_dlsym
#elif defined(__aarch64__)
        .text
        .globl  dlsym
        .type   dlsym, %function
        .p2align 4
dlsym:
        .cfi_startproc
        hint    #34                     // bti c
        cmn     x0, #1                  // RTLD_NEXT
        b.eq    .Lreal
        cbz     x1, .Lreal
        ldrb    w2, [x1]
        cmp     w2, #'c'
        b.ne    .Lreal
        ldrb    w2, [x1, #1]
        cmp     w2, #'u'
        b.ne    .Lreal
        ldrb    w2, [x1, #2]
        sub     w2, w2, #'A'
        cmp     w2, #25
        b.hi    .Lreal
        stp     x29, x30, [sp, #-32]!
        .cfi_def_cfa_offset 32
        .cfi_offset 29, -32
        .cfi_offset 30, -24
        stp     x0, x1, [sp, #16]
        bl      lull_lookup_symbol
        mov     x9, x0
        ldp     x0, x1, [sp, #16]
        ldp     x29, x30, [sp], #32
        .cfi_restore 29
        .cfi_restore 30
        .cfi_def_cfa_offset 0
        cbz     x9, .Lreal
        cmn     x9, #1
        csel    x0, xzr, x9, eq
        ret
.Lreal:
        stp     x29, x30, [sp, #-32]!
        .cfi_def_cfa_offset 32
        .cfi_offset 29, -32
        .cfi_offset 30, -24
        stp     x0, x1, [sp, #16]
        bl      lull_real_dlsym
        mov     x16, x0
        ldp     x0, x1, [sp, #16]
        ldp     x29, x30, [sp], #32
        .cfi_restore 29
        .cfi_restore 30
        .cfi_def_cfa_offset 0
        br      x16
        .cfi_endproc
        .size   dlsym, .-dlsym
        .hidden lull_lookup_symbol
        .hidden lull_real_dlsym
#else
#error "lull has no dlsym entry for this processor"
#endif
        .section .note.GNU-stack,"",%progbits
