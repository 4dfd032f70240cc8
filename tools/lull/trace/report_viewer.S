// The viewer of the HTML report, as bytes in the program.
    .section .rodata
    .global lull_report_viewer_begin
    .global lull_report_viewer_end
lull_report_viewer_begin:
    .incbin LULL_REPORT_VIEWER
lull_report_viewer_end:
    .byte 0
    .section .note.GNU-stack, "", @progbits
